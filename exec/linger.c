/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/linger.h"

enum {
    LOOK_NS = 50000, /* a look takes a hundredth of it */
    PAUSE_MIN_NS = 5000000,
    PAUSE_MAX_NS = 1000000000
};

bool pp_linger_is_due(const struct pp_linger *linger, int64_t now_ns)
{
    return linger->looked_ns == 0 || now_ns - linger->looked_ns >= LOOK_NS;
}

static int64_t longer(int64_t pause_ns) { return pause_ns > PAUSE_MAX_NS / 2 ? PAUSE_MAX_NS : 2 * pause_ns; }

void pp_linger_look(struct pp_linger *linger, int64_t now_ns, int64_t switches)
{
    bool first = linger->looked_ns == 0, wanted = switches != linger->switches;
    linger->looked_ns = now_ns;
    linger->switches = switches;
    if (first || !wanted || now_ns < linger->not_till_ns) return;
    bool again = linger->pause_ns > 0 && now_ns - linger->not_till_ns < linger->pause_ns;
    linger->pause_ns = again ? longer(linger->pause_ns) : PAUSE_MIN_NS;
    linger->not_till_ns = now_ns + linger->pause_ns;
}
