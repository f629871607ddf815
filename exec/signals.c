/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/signals.h"

#include <signal.h>
#include <stdatomic.h>

#include "core/options/main.h"

static _Atomic int64_t first_ns; /* when the first one came; 0: none has */
static atomic_bool ends_at_once;

static void on_signal(int number)
{
    if (atomic_load(&ends_at_once)) pp_end_by_signal();
    if (pp_signal_turn(&first_ns) != PP_TURN_IMPATIENT) return;
    signal(number, SIG_DFL);
    raise(number); /* comes when this handler returns */
}

pp_status pp_signals_catch(void) { return pp_catch_signals(on_signal, SA_RESTART); }

bool pp_signals_caught(void) { return atomic_load_explicit(&first_ns, memory_order_relaxed) != 0; }

void pp_signals_end_at_once(bool at_once) { atomic_store(&ends_at_once, at_once); }
