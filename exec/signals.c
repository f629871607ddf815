/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/signals.h"

#include <signal.h>
#include <stdatomic.h>

#include "core/main.h"

static atomic_bool caught;

static void on_signal(int number)
{
    (void)number;
    atomic_store_explicit(&caught, true, memory_order_relaxed);
}

pp_status pp_signals_catch(void)
{
    /* SA_RESETHAND: the second signal finds the default action. */
    return pp_catch_signals(on_signal, SA_RESTART | SA_RESETHAND);
}

bool pp_signals_caught(void) { return atomic_load_explicit(&caught, memory_order_relaxed); }
