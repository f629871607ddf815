/* SPDX-License-Identifier: Apache-2.0
 *
 * --split time in ppsim: finds the times of layers by which the model is cut into stages. Other splits need nothing.
 */
#ifndef PP_SIM_SPLIT_H
#define PP_SIM_SPLIT_H

#include "sim/predict.h"

/* Times of layers for the config, from the kernels in a profile of its device (or of p->waits); the caller frees
 * *layer_ns. texts: the profile of --profile; NULL: that of the database. NULL with --machine: pp_split_begin() finds
 * them then. PP_USAGE, PP_INPUT if there are no times. */
pp_status pp_split_find(const struct pp_config *config, const struct pp_predictor *p, struct pp_db *texts,
                        double **layer_ns) PP_MUST_CHECK;

/* How many cuts of a point are worth trying, since no rule says which is quickest: with --split time and --machine, and
 * with blocks, those of enum pp_even for as many stages on a rank; of a model also as many layers for each stage, and
 * as many parameters. */
int pp_split_cuts(const struct pp_predictor *p);

/* Is the cut not worth trying, since that one is the best of those before it? PP_EVEN_LEAN is for where PP_EVEN_EARLY
 * takes too much memory, or more time. */
bool pp_split_is_spare(const struct pp_point *point, int cut, int best);

/* The config from which the jobs of a point are made: p->config, but with --machine with layer_ns computed by its data
 * sheet for this point (its rows, T and so on), as if it had been asked for alone. Choose one of the cuts, counted from
 * 0, before a job is made. *layer_ns: memory of the config's, if any, which the caller frees when all are made. */
pp_status pp_split_begin(const struct pp_predictor *p, const struct pp_point *point, struct pp_config *out,
                         double **layer_ns) PP_MUST_CHECK;
void pp_split_choose(const struct pp_predictor *p, const struct pp_point *point, int cut, struct pp_config *config);
/* The same for blocks: the way of one of the cuts. */
struct pp_cut_way pp_split_way(const struct pp_point *point, int cut);

#endif
