/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PP_CORE_JOB_ROW_H
#define PP_CORE_JOB_ROW_H

#include "core/job.h"
#include "core/rows.h"

/* Sets what a row of results says of its configuration (docs/FORMATS.md), whether it is predicted or measured. As
 * pp_json_set(). */
json_t *pp_job_row(json_t *row, const struct pp_job *job);

#endif
