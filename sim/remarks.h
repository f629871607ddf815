/* SPDX-License-Identifier: Apache-2.0
 *
 * What ppsim says on standard error beside its results: what is predicted, where times come from, what fits; of each
 * machine that is compared. Of many alike one is told, and how many there are. A part of the program, as only programs
 * print.
 */
#ifndef PP_SIM_REMARKS_H
#define PP_SIM_REMARKS_H

#include "sim/predict_points.h"
#include "sim/remarks_all.h"
#include "sim/ways.h"

enum { PP_LARGE = 64 }; /* configurations that do not fit, to look at again */

/* Of one machine. Begins with zeros, `predictor` and `machine`. */
struct pp_remarks {
    const struct pp_predictor *predictor;
    const char *machine;                      /* its name, where several are compared; else NULL */
    int from[PP_COST_SOURCES], link_computed; /* configurations with times that were not measured as a whole */
    int measured;                             /* ... with some times that were measured */
    bool computed;                            /* a row of results has times of tasks that were computed */
    bool hop_told;                            /* that hops take no time */
    double taken;                             /* the most of all configurations */
    /* Of --memory: configurations that fit, and some of those that do not, first the one that needs least. */
    int fit, nlarge;
    bool checkpointed; /* some of them */
    struct pp_large {
        struct pp_point point;
        int replicas, context;
        double bytes; /* of a device */
    } large[PP_LARGE];
};

/* Before any prediction, of the first machine: model and batch, and where --chunks give far fewer microbatches than
 * asked. */
pp_status pp_remarks_begin(const struct pp_remarks *r, const struct pp_way *ways, int nways) PP_MUST_CHECK;

/* Of a prediction: which times were not measured, at once for the first of each kind. */
void pp_remarks_source(struct pp_remarks *r, const struct pp_point *point, const struct pp_cost_origin *origin);

/* Of a row of results (pp_row_create()): whether it fits. */
void pp_remarks_memory(struct pp_remarks *r, const struct pp_point *point, const json_t *row);

/* Where tasks were computed (r->computed): that the machine has much faster products than those of fp32, if nobody
 * asked for these. */
void pp_remarks_precision(const struct pp_remarks *r);

/* Where ways to use --workers were compared: that nobody named schedules. */
void pp_remarks_schedule(const struct pp_remarks *r);

/* After all predictions: how many there were of what was told once; then, if nothing fits, what needs least, and what
 * to change. */
void pp_remarks_totals(const struct pp_remarks *r);
void pp_remarks_fits(const struct pp_remarks *r);

#endif
