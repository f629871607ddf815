/* SPDX-License-Identifier: Apache-2.0
 *
 * Remarks of ppsim on standard error about each machine: what is predicted, where times come from, what fits into
 * memory. Of many similar remarks the first is printed, and at the end their number. This is a part of the program,
 * since only programs print.
 */
#ifndef PP_SIM_REMARKS_H
#define PP_SIM_REMARKS_H

#include "sim/advice.h"
#include "sim/predict_points.h"
#include "sim/remarks_all.h"
#include "sim/ways.h"

enum { PP_LARGE = 64 }; /* configurations that do not fit, to look at again */

/* What was found about one machine. To begin with, set `predictor`, `machine` and `db_new`, and all others to zero. */
struct pp_remarks {
    const struct pp_predictor *predictor;
    const char *machine;       /* its name, if several machines are compared; else NULL */
    bool db_new;               /* the database of --db was not there before */
    int from[PP_COST_SOURCES]; /* rows that are shown with times from each source */
    int link_computed;         /* rows that are shown with computed transfers or collectives */
    int64_t measured;          /* > 0: some configurations have measured times, shown or not (set by the caller) */
    bool computed;             /* a row of results has computed times of tasks (set by the caller) */
    bool hop_told;             /* the remark that hops take no time was printed */
    double taken;              /* the largest pp_cost_origin.taken of the rows that are shown */
    int fit;                   /* predicted ones that fit into memory (or of which that is not known) */
    bool checkpointed;         /* some configurations recompute stages or layers */
    int nlarge;
    /* [nlarge] Some configurations that do not fit; the first one needs least memory. */
    struct pp_large large[PP_LARGE];
};

/* Before all predictions, for the first machine: remarks on model and batch, on options without effect, and on --chunks
 * that give far fewer microbatches than asked for. */
pp_status pp_remarks_begin(const struct pp_remarks *r, const struct pp_way *ways, int nways) PP_MUST_CHECK;

/* For each row that is shown: remarks, for the first of each kind, on times that were not measured. */
void pp_remarks_source(struct pp_remarks *r, const struct pp_point *point, const struct pp_cost_origin *origin);

/* After each prediction: notes whether the configuration fits into memory. */
void pp_remarks_memory(struct pp_remarks *r, const struct pp_point *point, const struct pp_row *row);

/* If times of tasks were computed (r->computed) or a machine is named: the remark that the machine is much faster in
 * bf16, if --precision was not given. */
void pp_remarks_precision(const struct pp_remarks *r);

/* If times of tasks were computed for a plan (--workers, --price, --train-tokens), and nobody has named a machine or
 * device: the remark that they are of a cpu. */
void pp_remarks_machine(const struct pp_remarks *r);

/* If ways to use --workers were compared: the remark that only the default schedule was tried, if it was not given. */
void pp_remarks_schedule(const struct pp_remarks *r);

/* After all predictions: the numbers of remarks that were printed once; and, if nothing fits, the configuration that
 * needs least memory, and what to change. */
void pp_remarks_totals(const struct pp_remarks *r);
void pp_remarks_fits(struct pp_remarks *r);

#endif
