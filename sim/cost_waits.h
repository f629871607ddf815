/* SPDX-License-Identifier: Apache-2.0
 *
 * Times for --device delay without --times: they are taken from a profile of another device. The device waits for these
 * times, and predictions for it use them.
 */
#ifndef PP_SIM_COST_WAITS_H
#define PP_SIM_COST_WAITS_H

#include "sim/costs.h"

/* Finds the device whose profile is used: the one that was measured last in the database. Writes its name to `device`,
 * and sets options that depend on the device (pp_config_found_device()). PP_USAGE, with advice, if db is NULL or has no
 * profile. path: of the database, for the message; NULL: none was named. */
pp_status pp_waits_choose(struct pp_config *config, struct pp_db *db, const char *path, char *device,
                          size_t size) PP_MUST_CHECK;

/* Sets job->times.measured and job->times.hop_ms from the newest profile of `device`.
 *   Computations: with one worker the time alone, with more the time with all other cores (all other workers of the
 *   GPU) busy.
 *   Hop: the time of a transfer of the largest microbatch; 0 if no link was measured (origin->hop_missing).
 * Straggler and jitter are kept. *origin counts how many times were measured or interpolated. PP_INPUT, with advice, if
 * the profile lacks a computation of the job's training steps. */
pp_status pp_waits_from_profile(struct pp_job *job, struct pp_db *db, const char *device,
                                struct pp_cost_origin *origin) PP_MUST_CHECK;

/* A remark for users about a missing hop: one line that names the link, and how to measure it. Returns buf. */
const char *pp_waits_hop_remark(const struct pp_config *config, const char *device, char *buf, size_t size);

#endif
