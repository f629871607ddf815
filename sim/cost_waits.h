/* SPDX-License-Identifier: Apache-2.0
 *
 * A profile as times that are given: what the device `delay` waits, and what is predicted for it.
 */
#ifndef PP_SIM_COST_WAITS_H
#define PP_SIM_COST_WAITS_H

#include "sim/costs.h"

/* Whose profile it is: the device that was measured last in db, as text; the config learns what that device does to the
 * model. PP_USAGE, with what to do and the path (NULL: no database is named), if there is no db (NULL) or no profile
 * in it. */
pp_status pp_waits_choose(struct pp_config *config, struct pp_db *db, const char *path, char *device,
                          size_t size) PP_MUST_CHECK;

/* Sets job->times.measured, and the hop, from the newest profile of `device`: of one worker the times alone, of more
 * those with the other cores (the other sharers of a GPU) busy; the hop is a transfer of the largest microbatch, 0
 * where no link was measured. Straggler and jitter stay. PP_INPUT, with what to do, if the profile lacks a computation
 * of the job's training steps. *origin: how many were measured or interpolated, and whether a hop is missing. */
pp_status pp_waits_from_profile(struct pp_job *job, struct pp_db *db, const char *device,
                                struct pp_cost_origin *origin) PP_MUST_CHECK;

/* What is to be said where the hop is missing: one line that names the link, and how to measure it. Returns buf. */
const char *pp_waits_hop_remark(const struct pp_config *config, const char *device, char *buf, size_t size);

#endif
