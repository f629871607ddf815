/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether --precision fp8 does something: sizes may be such that all products stay in bf16.
 */
#ifndef PP_CORE_JOB_FP8_USE_H
#define PP_CORE_JOB_FP8_USE_H

#include <stddef.h>

#include "core/job/job.h"

/* Writes to buf a line for the user if the job has precision fp8, but no product in FP8, neither in training nor in
 * evaluation; else "" (also for a job without a model). */
void pp_fp8_remark(const struct pp_job *job, char *buf, size_t size);

#endif
