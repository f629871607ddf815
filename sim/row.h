/* SPDX-License-Identifier: Apache-2.0
 *
 * The row of a predicted configuration: what is printed of it, and what rows are compared by.
 */
#ifndef PP_SIM_ROW_H
#define PP_SIM_ROW_H

#include <jansson.h>

#include "sim/predict.h"

/* What a user should know of a configuration: pp_checkpoint_remark(), pp_fp8_remark(), pp_hosts_remark(). */
enum pp_point_remark { PP_REMARK_CHECKPOINT, PP_REMARK_FP8, PP_REMARK_HOSTS, PP_POINT_REMARKS };

/* For remarks about a row that is shown. */
struct pp_row_notes {
    struct pp_point point;              /* its texts are borrowed */
    struct pp_cost_origin origin;       /* of the prediction */
    char remark[PP_POINT_REMARKS][256]; /* each may be "" */
};

struct pp_row {
    /* All figures, under the names of docs/FORMATS.md; those that are not known are null. NULL: there is no row. */
    json_t *json;
    struct pp_row_notes *notes;
    /* Of the same prediction: */
    double ms_per_batch;
    double value;                   /* pp_prediction_value() */
    int64_t device_bytes;           /* of the device that needs most; -1: not known */
    bool too_large;                 /* it is known not to fit into memory */
    int workers;                    /* of all replicas */
    int replicas, context, experts; /* D, C, N */
    enum pp_cost_source source;     /* of the times of tasks */
    bool data_sheet;                /* anything was computed from the machine's data sheet */
    int target;                     /* the machine's index among those that are compared (sim/targets.h) */
};

/* Makes the row of a prediction, for target 0. PP_NOMEM; then there is no row. */
pp_status pp_row_create(const struct pp_predictor *p, const struct pp_prediction *prediction,
                        struct pp_row *out) PP_MUST_CHECK;
/* The row is for this one of several targets: it gets the machine's name. PP_NOMEM; then there is no row. */
pp_status pp_row_set_target(struct pp_row *row, int target, const char *machine) PP_MUST_CHECK;
/* Releases a row, if there is one; then there is none. */
void pp_row_free(struct pp_row *row);

#endif
