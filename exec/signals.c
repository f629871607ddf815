/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

static atomic_bool caught;

static void on_signal(int number)
{
    (void)number;
    atomic_store_explicit(&caught, true, memory_order_relaxed);
}

pp_status pp_signals_catch(void)
{
    static const int numbers[] = {SIGINT, SIGTERM};
    /* SA_RESETHAND: the second signal finds the default action. */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (sigaction(numbers[i], &action, NULL))
            return pp_fail(PP_IO, "cannot catch signal %d: %s", numbers[i], strerror(errno));
    return PP_OK;
}

bool pp_signals_caught(void) { return atomic_load_explicit(&caught, memory_order_relaxed); }
