/* SPDX-License-Identifier: Apache-2.0
 *
 * The common part of interleaved 1F1B (interleaved.c, which explains rounds) and its zero-bubble variant
 * (interleaved_zb.c).
 */
#ifndef PP_SCHEDULES_INTERLEAVED_H
#define PP_SCHEDULES_INTERLEAVED_H

#include "schedules/schedule.h"

/* In training: PP_USAGE unless M is a multiple of the number of rounds, max(1, M div P). With NAME:N instead: PP_USAGE
 * unless P <= N <= M, and M mod N is 0 or at least P. */
pp_status pp_interleaved_check(const struct pp_schedule_shape *shape) PP_MUST_CHECK;
/* Appends the order of a rank. split: each backward is an I, and rank r runs the W of an I after r further Is; the rank
 * also runs fewer forwards ahead. */
pp_status pp_interleaved_order(const struct pp_schedule_shape *shape, int rank, bool split,
                               struct pp_order *out) PP_MUST_CHECK;

#endif
