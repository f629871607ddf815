/* SPDX-License-Identifier: Apache-2.0
 *
 * What interleaved 1F1B and its zero-bubble variant share.
 */
#ifndef PP_SCHEDULES_INTERLEAVED_H
#define PP_SCHEDULES_INTERLEAVED_H

#include "schedules/schedule.h"

/* PP_USAGE unless M is a multiple of the rounds, max(1, M div P); with N of NAME:N, unless P <= N <= M, and M mod N is
 * 0 or at least P. */
pp_status pp_interleaved_check(const struct pp_schedule_shape *shape) PP_MUST_CHECK;
/* split: backwards are I and, rank's number of them later, W; and ranks begin fewer forwards ahead. */
pp_status pp_interleaved_order(const struct pp_schedule_shape *shape, int rank, bool split,
                               struct pp_order *out) PP_MUST_CHECK;

#endif
