/* SPDX-License-Identifier: Apache-2.0
 *
 * Cutting the layers into stages. The embedding goes with the first stage, the decoder with the last; of several stages
 * these two may have no layers besides.
 */
#include <stdlib.h>
#include <string.h>

#include "core/plan/cut.h"
#include "core/shape/split.h"
#include "kernels/model.h"

static const double most_cost = 1e150; /* its square is finite */

/* What layers weigh where each of the `layers` counts as one, and where by its parameters. cost: [layers + 2]. */
static void count_layers(const struct pp_shape *shape, double *cost)
{
    for (int i = 1; i <= shape->layers; i++) cost[i] = 1;
    cost[0] = cost[shape->layers + 1] = 0;
}

static void count_parameters(const struct pp_shape *shape, double *cost)
{
    cost[0] = (double)pp_shape_embedding(shape);
    for (int i = 1; i <= shape->layers; i++) cost[i] = (double)pp_shape_layer(shape, i - 1);
    cost[shape->layers + 1] = (double)pp_shape_decoder(shape);
}

/* cost: [layers + 2] */
static pp_status check_costs(const struct pp_shape *shape, const double *cost)
{
    double sum = 0;
    for (int i = 0; i < shape->layers + 2; i++) sum += cost[i];
    if (sum < most_cost) return PP_OK;
    return pp_fail(PP_INPUT, "--split: layers that cost %g cannot be weighed against each other", sum);
}

static pp_status check_stages(const struct pp_shape *shape, const struct pp_cut *cut)
{
    if (cut->stages < 1) return pp_fail(PP_USAGE, "%d stages: a pipeline has at least one", cut->stages);
    if (cut->stages > shape->layers + pp_split_ends(cut->split))
        return pp_fail(PP_USAGE,
                       "%d stages (--stages times --virtual) need at least as many layers, but --layers is %d: "
                       "use fewer stages or more layers",
                       cut->stages, shape->layers);
    return PP_OK;
}

pp_status pp_model_cut(const struct pp_shape *shape, const struct pp_cut *cut, int *layers_out)
{
    const enum pp_split_by by = pp_split_of(cut->split);
    double *cost;
    PP_TRY(check_stages(shape, cut));
    if (by == PP_SPLIT_BY_LIST) {
        const struct pp_cut_list list = {.words = "uniform, parameters, time",
                                         .item = "layer",
                                         .items = shape->layers,
                                         .ends = true};
        return pp_cut_list(&list, cut->split, cut->stages, layers_out);
    }
    if (by == PP_SPLIT_BY_TIME && !cut->layer_ns)
        return pp_fail(PP_USAGE,
                       "--split time needs measured layer times: give a database made by ppprof with --db, or "
                       "use --split uniform or parameters");
    PP_TRY(PP_NEW(&cost, shape->layers + 2));
    if (by == PP_SPLIT_BY_COUNT)
        count_layers(shape, cost);
    else if (by == PP_SPLIT_BY_PARAMETERS)
        count_parameters(shape, cost);
    else
        memcpy(cost, cut->layer_ns, (size_t)(shape->layers + 2) * sizeof *cost);
    const struct pp_cut_row row = {.layers = shape->layers, .cost = cost};
    pp_status status = check_costs(shape, cost);
    if (status != PP_OK) goto done;
    const struct pp_cut_ranks_call call = {cut->stage_rank, pp_split_ends(cut->split) > 0, cut->way};
    if (cut->stage_rank && cut->way.even != PP_EVEN_STAGES)
        status = pp_cut_ranks(&row, &call, cut->stages, layers_out);
    else if (by == PP_SPLIT_BY_COUNT)
        pp_cut_uniform(shape->layers, cut->stages, layers_out);
    else
        status = pp_cut_balanced(&row, cut->way, cut->stages, layers_out);
done:
    free(cost);
    return status;
}
