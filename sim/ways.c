/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/ways.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pp_status refuse(const struct pp_config *config)
{
    static const struct {
        const char *option, *why;
    } rows[] = {{"replicas", "there are as many as there are workers for"},
                {"rows", "--global-rows are the rows of all replicas, who share them evenly"},
                {"draw", "draw the way that you choose, with --stages, --replicas and --rows"},
                {"emit", "write the way that you choose, with --stages, --replicas and --rows"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (pp_config_given(config, rows[i].option))
            return pp_fail(PP_USAGE, "--workers goes without --%s: %s", rows[i].option, rows[i].why);
    if (config->times)
        return pp_fail(PP_USAGE, "--workers goes without --times: these are of a rank whatever it holds, and each way "
                                 "to use the workers gives it other layers and rows");
    return PP_OK;
}

pp_status pp_ways_prepare(struct pp_config *config)
{
    if (!config->workers && !config->global_rows) return PP_OK;
    if (!config->workers || !config->global_rows)
        return pp_fail(PP_USAGE,
                       "--workers and --global-rows go together: so many devices, and the rows of a batch "
                       "that they all share; --%s is missing",
                       config->workers ? "global-rows" : "workers");
    PP_TRY(refuse(config));
    config->replicas = 1;
    config->rows = config->global_rows;
    return PP_OK;
}

void pp_way_config(const struct pp_config *config, const struct pp_way *way, struct pp_config *out)
{
    *out = *config;
    out->replicas = way->replicas;
    out->rows = way->rows;
    if (config->workers) out->stages = (struct pp_ints){1, {way->points[0].stages}};
    if (config->workers) out->tensor = (struct pp_ints){1, {way->points[0].tensor}};
    pp_config_cut_rows(out);
}

/* P ranks of T workers, and all the replicas of them that the workers are enough for. */
static pp_status add(const struct pp_config *config, const struct pp_schedules *schedules, int tensor, int stages,
                     struct pp_way *way)
{
    struct pp_config one = *config;
    const int64_t each = (int64_t)stages * tensor;
    const int replicas = (int)(config->workers / each);
    char of_workers[48] = "";
    if (tensor > 1) snprintf(of_workers, sizeof of_workers, " of %d workers each", tensor);
    one.stages = (struct pp_ints){1, {stages}};
    one.tensor = (struct pp_ints){1, {tensor}};
    if (replicas > 0 && config->global_rows >= replicas) one.rows = config->global_rows / replicas;
    pp_config_cut_rows(&one);
    PP_TRY(pp_points(&one, schedules, &way->points, &way->npoints));
    if (config->workers % each)
        snprintf(way->impossible, sizeof way->impossible, "%d worker%s no whole number of pipelines of %d rank%s%s",
                 config->workers, config->workers == 1 ? " is" : "s are", stages, pp_plural(stages), of_workers);
    else if (config->global_rows % replicas)
        snprintf(way->impossible, sizeof way->impossible, "%d replicas cannot share the %d row%s of a batch evenly",
                 replicas, config->global_rows, pp_plural(config->global_rows));
    else
        *way = (struct pp_way){replicas, config->global_rows / replicas, way->points, way->npoints, ""};
    return PP_OK;
}

/* All P, or those that are asked for; at least one, which says why there is no other. */
static pp_status find_tensor(const struct pp_config *config, const struct pp_schedules *schedules, int tensor,
                             struct pp_way *ways, int *n)
{
    const bool given = pp_config_given(config, "stages");
    for (int i = 0; given && i < config->stages.n; i++)
        PP_TRY(add(config, schedules, tensor, config->stages.v[i], &ways[(*n)++]));
    for (int p = 1; !given && p <= config->workers && p <= config->layers; p++)
        if (p == 1 || config->workers % ((int64_t)p * tensor) == 0)
            PP_TRY(add(config, schedules, tensor, p, &ways[(*n)++]));
    return PP_OK;
}

static pp_status find(const struct pp_config *config, const struct pp_schedules *schedules, struct pp_way *ways, int *n)
{
    if (!config->workers) {
        ways[(*n)++] = (struct pp_way){.replicas = config->replicas, .rows = config->rows};
        return pp_points(config, schedules, &ways[0].points, &ways[0].npoints);
    }
    for (int i = 0; i < config->tensor.n; i++) PP_TRY(find_tensor(config, schedules, config->tensor.v[i], ways, n));
    return PP_OK;
}

pp_status pp_ways(const struct pp_config *config, const struct pp_schedules *schedules, struct pp_way **ways, int *n)
{
    const int most = config->tensor.n * (PP_LIST_MAX + config->workers); /* more than a number has divisors */
    *n = 0;
    PP_TRY(PP_NEW(ways, most));
    return find(config, schedules, *ways, n);
}

void pp_ways_free(struct pp_way *ways, int n)
{
    for (int i = 0; i < n; i++) free(ways[i].points);
    free(ways);
}

struct place {
    json_t *row;
    bool out;
    double ms;
    size_t before;
};

static int by_time(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->out != y->out) return x->out - y->out;
    if (x->ms != y->ms) return x->ms < y->ms ? -1 : 1;
    return x->before < y->before ? -1 : 1;
}

pp_status pp_ways_sort(json_t *rows)
{
    const size_t n = json_array_size(rows);
    struct place *places;
    pp_status status = PP_OK;
    PP_TRY(PP_NEW(&places, n));
    for (size_t i = 0; i < n; i++) {
        json_t *row = json_incref(json_array_get(rows, i));
        places[i] = (struct place){row, json_is_false(json_object_get(row, "fits")),
                                   json_number_value(json_object_get(row, "ms_per_batch")), i};
    }
    qsort(places, n, sizeof *places, by_time);
    for (size_t i = 0; i < n; i++)
        if (json_array_set_new(rows, i, places[i].row)) status = pp_fail(PP_NOMEM, "cannot allocate room to sort");
    free(places);
    return status;
}
