/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields of a result that describe its configuration.
 */
#ifndef PP_CORE_JOB_JOB_ROW_H
#define PP_CORE_JOB_JOB_ROW_H

#include "core/job/job.h"
#include "core/job/rows.h"

/* Sets the fields that name the job's configuration (docs/FORMATS.md) in a row of results, predicted or measured.
 * Returns the row, or NULL if memory is short, as pp_json_set() does. */
json_t *pp_job_row(json_t *row, const struct pp_job *job);

#endif
