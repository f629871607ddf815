/* SPDX-License-Identifier: Apache-2.0
 *
 * Cutting the layers into stages. The embedding goes with the first stage, the decoder with the last.
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

/* Best cut of the first j layers into i stages: least maximum, then least sum of squares (so that what is left is
 * even, too). */
struct cut {
    double max, squares;
    int last; /* layers of the last stage */
};

static bool better(const struct cut *a, const struct cut *b)
{
    return a->max < b->max || (a->max == b->max && a->squares < b->squares);
}

/* prefix: [layers + 1] cost of the first j layers, embedding included from j = 1 on, decoder at j = layers. */
static void cut_table(const double *prefix, int layers, int stages, struct cut *table)
{
    const int64_t width = layers + 1;
    for (int64_t i = 0; i < (stages + 1) * width; i++) table[i] = (struct cut){DBL_MAX, DBL_MAX, 0};
    table[0] = (struct cut){0, 0, 0};
    for (int i = 1; i <= stages; i++)
        for (int j = i; j <= layers - (stages - i); j++)
            for (int k = i - 1; k < j; k++) {
                const struct cut *before = &table[(i - 1) * width + k];
                if (before->max == DBL_MAX) continue;
                double cost = prefix[j] - prefix[k];
                struct cut now = {cost > before->max ? cost : before->max, before->squares + cost * cost, j - k};
                if (better(&now, &table[i * width + j])) table[i * width + j] = now;
            }
}

/* cost: [layers + 2] of the embedding, the layers, the decoder. */
static pp_status cut_balanced(const double *cost, int layers, int stages, int *out)
{
    pp_status status = PP_OK;
    double *prefix = NULL;
    struct cut *table = NULL;
    PP_TRY_DONE(PP_NEW(&prefix, layers + 1));
    PP_TRY_DONE(PP_NEW(&table, (size_t)(layers + 1) * (size_t)(stages + 1)));
    prefix[0] = 0;
    for (int j = 1; j <= layers; j++) prefix[j] = prefix[j - 1] + cost[j] + (j == 1 ? cost[0] : 0);
    prefix[layers] += cost[layers + 1];
    cut_table(prefix, layers, stages, table);
    for (int i = stages, j = layers; i > 0; i--) {
        out[i - 1] = table[i * (layers + (int64_t)1) + j].last;
        j -= out[i - 1];
    }
done:
    free(prefix);
    free(table);
    return status;
}

static pp_status cut_parameters(const struct pp_shape *shape, int stages, int *out)
{
    double *cost;
    PP_TRY(PP_NEW(&cost, shape->layers + 2));
    cost[0] = (double)pp_shape_embedding(shape);
    for (int i = 1; i <= shape->layers; i++) cost[i] = (double)pp_shape_layer(shape);
    cost[shape->layers + 1] = (double)pp_shape_decoder(shape);
    pp_status status = cut_balanced(cost, shape->layers, stages, out);
    free(cost);
    return status;
}

static pp_status cut_time(const struct pp_shape *shape, int stages, const double *layer_ns, int *out)
{
    if (!layer_ns)
        return pp_fail(PP_USAGE,
                       "--split time needs measured layer times: give a database made by ppprof with --db, or "
                       "use --split uniform or parameters");
    return cut_balanced(layer_ns, shape->layers, stages, out);
}

/* "3,5": layers of each stage. */
static pp_status cut_list(const struct pp_shape *shape, int stages, const char *split, int *out)
{
    const char *at = split;
    int n = 0;
    int64_t sum = 0;
    while (n < stages) {
        char *end;
        errno = 0;
        long value = strtol(at, &end, 10);
        if (end == at || errno || value < 1 || value > INT_MAX || (*end && *end != ','))
            return pp_fail(PP_USAGE,
                           "--split %s: expected uniform, parameters, time, or the layers of each of the %d "
                           "stages as positive numbers with commas between them",
                           split, stages);
        out[n++] = (int)value;
        sum += value;
        at = end + (*end == ',');
        if (!*end) break;
    }
    if (n != stages || *at)
        return pp_fail(PP_USAGE, "--split %s: there %s %d stage%s, the list must have as many numbers", split,
                       stages == 1 ? "is" : "are", stages, pp_plural(stages));
    if (sum != shape->layers)
        return pp_fail(PP_USAGE, "--split %s: the numbers add up to %lld, the model has %d layer%s", split,
                       (long long)sum, shape->layers, pp_plural(shape->layers));
    return PP_OK;
}

pp_status pp_model_cut(const struct pp_shape *shape, int stages, const char *split, const double *layer_ns,
                       int *layers_out)
{
    if (stages < 1) return pp_fail(PP_USAGE, "%d stages: a pipeline has at least one", stages);
    if (stages > shape->layers)
        return pp_fail(PP_USAGE,
                       "%d stages (--stages times --virtual) need at least as many layers, but --layers is %d: "
                       "use fewer stages or more layers",
                       stages, shape->layers);
    if (!split || !strcmp(split, "uniform")) {
        cut_uniform(shape->layers, stages, layers_out);
        return PP_OK;
    }
    if (!strcmp(split, "parameters")) return cut_parameters(shape, stages, layers_out);
    if (!strcmp(split, "time")) return cut_time(shape, stages, layer_ns, layers_out);
    return cut_list(shape, stages, split, layers_out);
}
