/* SPDX-License-Identifier: Apache-2.0
 *
 * What is done before a signal ends a program. A thread of its own does it: it may wait for locks and close files, as
 * a signal handler may not.
 */
#ifndef PP_CORE_ENDING_H
#define PP_CORE_ENDING_H

#include "core/status.h"

/* From now on the first SIGINT or SIGTERM calls act(context) in another thread, and then ends the process as ever
 * (core/main.h); a later one, of a user who does not want to wait, ends it at once. One at a time. PP_IO, PP_NOMEM. */
pp_status pp_ending_begin(void (*act)(void *context), void *context) PP_MUST_CHECK;
/* Signals end the process at once again. Does not return if one has come: hold no lock that act() takes. PP_IO. */
pp_status pp_ending_end(void) PP_MUST_CHECK;

#endif
