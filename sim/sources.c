/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/sources.h"

#include "core/base/log.h"

struct pp_sources pp_sources_of(const struct pp_row *rows, int64_t n, int target)
{
    struct pp_sources sources = {0};
    for (int64_t i = 0; i < n; i++) {
        if (rows[i].target != target) continue;
        sources.any += rows[i].data_sheet;
        sources.tasks += rows[i].source == PP_COST_MACHINE;
    }
    return sources;
}

void pp_sources_warn(int64_t n, int64_t tasks, bool measured)
{
    static const char advice[] = "a data sheet's are usually shorter, so do not rank one against the other";
    if (tasks > 0 && tasks < n)
        pp_warn("%lld of %lld results have times by a data sheet, the others measured ones: %s", (long long)tasks,
                (long long)n, advice);
    else if (tasks > 0 && measured)
        pp_warn("all of these results have times by a data sheet, and others, which are not shown, measured ones: %s "
                "(--top shows more)",
                advice);
}
