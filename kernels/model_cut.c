/* SPDX-License-Identifier: Apache-2.0
 *
 * Cutting the layers into stages. The embedding goes with the first stage, the decoder with the last; of several stages
 * these two may have no layers besides.
 */
#include <errno.h>
#include <float.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/model.h"

/* Stage i starts at layer round(i * layers / stages). */
static void cut_uniform(int layers, int stages, int *out)
{
    int64_t begin = 0;
    for (int64_t i = 1; i <= stages; i++) {
        int64_t end = (2 * i * layers + stages) / (2 * stages);
        out[i - 1] = (int)(end - begin);
        begin = end;
    }
}

static const double most_cost = 1e150; /* its square is finite */

/* The embedding, the layers and the decoder, as items in a row, of which each stage has one or more. Best cut of the
 * first j of them into i stages: least maximum, then least sum of squares (so that what is left is even, too), then the
 * longest last stage. */
struct cut {
    double max, squares;
};

/* The search. With i stages there are width counts of items j: i, i + 1, ...; so many are left for the others. */
struct cutting {
    const double *prefix; /* [items + 1] cost of the first j */
    int width;
    struct cut *before, *now; /* [width] with i - 1 stages and with i, from j = i - 1 and from j = i on */
    int *last;                /* [stages][width] items of the last of i stages */
};

/* Over k, the items of the first i - 1 stages, their maximum never falls and the last stage's cost never rises. So the
 * least of the larger one lies where they cross, which moves to the right with j, and beside it as long as neither is
 * larger. Those who share it are compared by squares. */
static void cut_row(const struct cutting *c, int i, int *last)
{
    const double *from = c->prefix + i - 1; /* k = i - 1 + x */
    for (int o = 0, cross = 0; o < c->width; o++) {
        const double end = c->prefix[i + o];
        while (cross <= o && c->before[cross].max < end - from[cross]) cross++;
        double least = cross <= o ? c->before[cross].max : DBL_MAX;
        if (cross > 0 && end - from[cross - 1] < least) least = end - from[cross - 1];
        int x = cross;
        while (x > 0 && end - from[x - 1] <= least) x--;
        c->now[o] = (struct cut){least, DBL_MAX};
        for (; x <= o && c->before[x].max <= least; x++) {
            const double cost = end - from[x], squares = c->before[x].squares + cost * cost;
            if (squares >= c->now[o].squares) continue;
            c->now[o].squares = squares;
            last[o] = o + 1 - x;
        }
    }
}

static void cut_rows(struct cutting *c, int stages)
{
    for (int x = 1; x < c->width; x++) c->before[x] = (struct cut){DBL_MAX, DBL_MAX};
    for (int i = 1; i <= stages; i++) {
        struct cut *made = c->now;
        cut_row(c, i, c->last + (int64_t)(i - 1) * c->width);
        c->now = c->before;
        c->before = made;
    }
}

/* cost: [layers + 2] of the embedding, the layers, the decoder. */
static pp_status cut_balanced(const double *cost, int layers, int stages, int *out)
{
    const int items = layers + 2;
    struct cutting c = {.width = items - stages + 1};
    double *prefix = NULL;
    pp_status status;
    PP_TRY_DONE(PP_NEW(&prefix, items + 1));
    PP_TRY_DONE(PP_NEW(&c.before, c.width));
    PP_TRY_DONE(PP_NEW(&c.now, c.width));
    PP_TRY_DONE(PP_NEW(&c.last, (size_t)stages * (size_t)c.width));
    for (int j = 0; j < items; j++) prefix[j + 1] = prefix[j] + cost[j];
    c.prefix = prefix;
    cut_rows(&c, stages);
    for (int i = stages, j = items; i > 0; j -= out[--i]) out[i - 1] = c.last[(int64_t)(i - 1) * c.width + j - i];
    out[0]--; /* the embedding, and the decoder, are no layers */
    out[stages - 1]--;
done:
    free(prefix);
    free(c.before);
    free(c.now);
    free(c.last);
    return status;
}

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

/* May the stage have so few layers? */
static bool has_work(int stage, int stages, long layers)
{
    return layers > 0 || (layers == 0 && (stage == 0 || stage == stages - 1));
}

/* "3,5": layers of each stage. */
static pp_status cut_list(const struct pp_shape *shape, int stages, const char *split, int *out)
{
    const char *at = split;
    char *end = NULL;
    int n = 0;
    int64_t sum = 0;
    while (n < stages) {
        errno = 0;
        long value = strtol(at, &end, 10);
        if (end == at || errno || !has_work(n, stages, value) || value > INT_MAX || (*end && *end != ','))
            return pp_fail(PP_USAGE,
                           "--split %s: expected uniform, parameters, time, or the layers of each of the %d "
                           "stages as numbers with commas between them, positive but for the first and the last",
                           split, stages);
        out[n++] = (int)value;
        sum += value;
        at = end + (*end == ',');
        if (!*end) break;
    }
    if (n != stages || *end)
        return pp_fail(PP_USAGE, "--split %s: there %s %d stage%s, the list must have as many numbers", split,
                       stages == 1 ? "is" : "are", stages, pp_plural(stages));
    if (sum != shape->layers)
        return pp_fail(PP_USAGE, "--split %s: the numbers add up to %lld, the model has %d layer%s", split,
                       (long long)sum, shape->layers, pp_plural(shape->layers));
    return PP_OK;
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
    const char *split = cut->split ? cut->split : "uniform";
    const bool uniform = strcmp(split, "uniform") == 0, parameters = strcmp(split, "parameters") == 0;
    double *cost;
    PP_TRY(check_stages(shape, cut));
    if (!uniform && !parameters && strcmp(split, "time") != 0) return cut_list(shape, cut->stages, split, layers_out);
    if (!uniform && !parameters && !cut->layer_ns)
        return pp_fail(PP_USAGE,
                       "--split time needs measured layer times: give a database made by ppprof with --db, or "
                       "use --split uniform or parameters");
    PP_TRY(PP_NEW(&cost, shape->layers + 2));
    if (uniform)
        count_layers(shape, cost);
    else if (parameters)
        count_parameters(shape, cost);
    else
        memcpy(cost, cut->layer_ns, (size_t)(shape->layers + 2) * sizeof *cost);
    pp_status status = check_costs(shape, cost);
    if (status != PP_OK) goto done;
    if (cut->stage_rank)
        status = pp_model_even_out(shape, cut, cost, layers_out);
    else if (uniform)
        cut_uniform(shape->layers, cut->stages, layers_out);
    else
        status = cut_balanced(cost, shape->layers, cut->stages, layers_out);
done:
    free(cost);
    return status;
}
