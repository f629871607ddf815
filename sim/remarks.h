/* SPDX-License-Identifier: Apache-2.0
 *
 * What ppsim says on standard error beside its results: what is predicted, what was left out, where times come from.
 * Of many alike one is told, and how many there are. A part of the program, as only programs print.
 */
#ifndef PP_SIM_REMARKS_H
#define PP_SIM_REMARKS_H

#include "sim/predict_points.h"
#include "sim/ways.h"

struct pp_left_out; /* configurations that are impossible for one reason */

enum { PP_LARGE = 64 }; /* configurations that do not fit, to look at again */

/* Begins with zeros and `predictor`; ends with pp_remarks_free(). */
struct pp_remarks {
    const struct pp_predictor *predictor;
    int from[PP_COST_SOURCES], link_computed; /* configurations with times that were not measured as a whole */
    int measured;                             /* ... with some times that were measured */
    int checkpoints;                          /* ... whose checkpoints save nothing */
    bool hop_told;                            /* that hops take no time */
    double taken;                             /* the most of all configurations */
    struct pp_left_out *left_out;             /* by their first */
    /* Of --memory: configurations that fit, and some of those that do not, first the one that needs least. */
    int fit, nlarge;
    bool checkpointed; /* some of them */
    struct pp_large {
        struct pp_point point;
        int replicas, context;
        double bytes; /* of a device */
    } large[PP_LARGE];
};

/* Before any prediction: model and batch, and where --chunks give far fewer microbatches than asked. */
pp_status pp_remarks_begin(const struct pp_remarks *r, const struct pp_way *ways, int nways) PP_MUST_CHECK;

/* Of a prediction: which times were not measured, at once for the first of each kind. */
void pp_remarks_source(struct pp_remarks *r, const struct pp_point *point, const struct pp_cost_origin *origin);

/* pp_checkpoint_remark() of it; "": nothing is to be said. */
void pp_remarks_checkpoint(struct pp_remarks *r, const char *remark);

/* Of a row of results (pp_row_create()): whether it fits. */
void pp_remarks_memory(struct pp_remarks *r, const struct pp_point *point, const json_t *row);

/* Where tasks were computed for the machine: that it has much faster products than those of fp32, if nobody asked for
 * these. */
void pp_remarks_precision(const struct pp_remarks *r);

/* Where ways to use --workers were compared: that nobody named schedules. */
void pp_remarks_schedule(const struct pp_remarks *r);

/* Notes an impossible configuration, and why. Reasons that differ in numbers alone are one. */
pp_status pp_remarks_leave_out(struct pp_remarks *r, const struct pp_point *point, const char *why) PP_MUST_CHECK;

/* After all predictions: what was left out; then how many there were of what was told once; then, if nothing fits, what
 * needs least, and what to change. */
void pp_remarks_left_out(const struct pp_remarks *r);
void pp_remarks_totals(const struct pp_remarks *r);
void pp_remarks_fits(const struct pp_remarks *r);
void pp_remarks_free(struct pp_remarks *r);

#endif
