/* SPDX-License-Identifier: Apache-2.0
 *
 * SIGINT, SIGTERM and SIGHUP ask the run to stop: the first sets a flag that every waiting loop looks at; one that
 * comes half a second later or more ends the process the ordinary way, for a user who does not want to wait.
 * (`timeout`, launchers and terminals send the same request twice at once.) What a process was started to ignore it
 * ignores.
 */
#ifndef PP_EXEC_SIGNALS_H
#define PP_EXEC_SIGNALS_H

#include <stdbool.h>

#include "core/base/status.h"

/* From now on these signals set the flag. */
pp_status pp_signals_catch(void) PP_MUST_CHECK;
/* The flag: has a signal come? */
bool pp_signals_caught(void);
/* true: from now on a signal ends the process at once, as it ends other programs (core/options/main.h). false: no
 * longer. */
void pp_signals_end_at_once(bool at_once);

#endif
