/* SPDX-License-Identifier: Apache-2.0
 *
 * An action before a signal ends the program. A thread of its own performs it, because it may wait for locks and close
 * files, which a signal handler must not.
 */
#ifndef PP_CORE_OPTIONS_ENDING_H
#define PP_CORE_OPTIONS_ENDING_H

#include "core/base/status.h"

/* From now on the first SIGINT, SIGTERM or SIGHUP calls act(context) in another thread, and then ends the process as
 * usual (core/options/main.h). A later signal, from a user who does not want to wait, ends it at once. There is one
 * action at a time. PP_IO, PP_NOMEM. */
pp_status pp_ending_begin(void (*act)(void *context), void *context) PP_MUST_CHECK;
/* Signals end the process at once again, without an action. If a signal has come before, this call does not return, so
 * the caller must hold no lock that act() takes. PP_IO. */
pp_status pp_ending_end(void) PP_MUST_CHECK;

#endif
