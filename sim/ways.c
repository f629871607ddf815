/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/ways.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pp_status refuse(const struct pp_config *config)
{
    static const struct {
        size_t option; /* PP_OPTION() */
        const char *why;
    } rows[] = {{PP_OPTION(replicas), "there are as many as there are workers for"},
                {PP_OPTION(rows), "--global-rows are the rows of all replicas, who share them evenly"},
                {PP_OPTION(draw), "draw the way that you choose, with --stages, --replicas and --rows"},
                {PP_OPTION(emit), "write the way that you choose, with --stages, --replicas and --rows"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (pp_config_given_of(config, rows[i].option))
            return pp_fail(PP_USAGE, "--workers goes without --%s: %s", pp_config_row_of(rows[i].option)->name,
                           rows[i].why);
    if (config->times)
        return pp_fail(PP_USAGE, "--workers goes without --times: these are of a rank whatever it holds, and each way "
                                 "to use the workers gives it other layers and rows");
    return PP_OK;
}

pp_status pp_ways_prepare(struct pp_config *config)
{
    const bool asked = config->workers.n > 0;
    if (config->usual && !asked)
        return pp_fail(PP_USAGE, "--auto goes with --workers and --global-rows: it tries ways to use so many devices");
    if (config->top && !asked) return pp_fail(PP_USAGE, "--top goes with --workers: it leaves out ways to use them");
    if (!asked && !config->global_rows) return PP_OK;
    if (!asked || !config->global_rows)
        return pp_fail(PP_USAGE,
                       "--workers and --global-rows go together: so many devices, and the rows of a batch "
                       "that they all share; --%s is missing",
                       asked ? "global-rows" : "workers");
    PP_TRY(refuse(config));
    config->replicas = 1;
    config->rows = config->global_rows;
    return PP_OK;
}

/* Gives the config the way's degrees in place of lists of them. */
static void set_degrees(const struct pp_way *way, struct pp_config *config)
{
    config->context_parallel = (struct pp_ints){1, {way->context}};
    pp_config_set_expert_parallel(config, way->experts);
}

void pp_way_config(const struct pp_config *config, const struct pp_way *way, struct pp_config *out)
{
    *out = *config;
    out->replicas = way->replicas;
    out->rows = way->rows;
    set_degrees(way, out);
    pp_config_cut_rows(out);
    if (!way->workers) return;
    out->workers = (struct pp_ints){1, {way->workers}};
    out->stages = (struct pp_ints){1, {way->points[0].ranks}};
    out->tensor = (struct pp_ints){1, {way->points[0].tensor}};
}

/* Why so many workers are no whole number of pipelines of P T C. */
static void tell_remainder(int workers, const struct pp_point *shape, struct pp_way *way)
{
    const int64_t of_rank = (int64_t)shape->tensor * way->context;
    char of_workers[48] = "", degrees[64] = "";
    if (of_rank > 1) snprintf(of_workers, sizeof of_workers, " of %lld workers each", (long long)of_rank);
    if (way->context > 1)
        snprintf(degrees, sizeof degrees, ", --tensor %d x --context-parallel %d", shape->tensor, way->context);
    else if (shape->tensor > 1)
        snprintf(degrees, sizeof degrees, ", --tensor %d", shape->tensor);
    snprintf(way->impossible, sizeof way->impossible, "%d worker%s no whole number of pipelines of %d rank%s%s%s",
             workers, workers == 1 ? " is" : "s are", shape->ranks, pp_plural(shape->ranks), of_workers, degrees);
}

/* Why a batch of `rows` rows is none for so many replicas, and which next to it are. */
static void tell_rows(int replicas, int rows, struct pp_way *way)
{
    const int fewer = rows - rows % replicas;
    char some[16] = "";
    if (fewer > 0) snprintf(some, sizeof some, "%d or ", fewer);
    snprintf(way->impossible, sizeof way->impossible,
             "%d replicas cannot share the %d row%s of a batch evenly: use --global-rows %s%lld", replicas, rows,
             pp_plural(rows), some, (long long)fewer + replicas);
}

/* Sets the way for P and T of `shape`: as many replicas of P T C workers as `workers` workers are. */
static pp_status add(const struct pp_config *config, const struct pp_schedules *schedules, int workers,
                     const struct pp_point *shape, struct pp_way *way)
{
    const int64_t each = (int64_t)shape->ranks * shape->tensor * way->context;
    const int replicas = (int)(workers / each);
    struct pp_point first = *shape;
    struct pp_way tried = *way; /* nearly so, where it is impossible */
    struct pp_config one;
    way->workers = tried.workers = workers;
    tried.points = &first;
    tried.replicas = replicas > 0 ? replicas : config->replicas;
    tried.rows = replicas > 0 && config->global_rows >= replicas ? config->global_rows / replicas : config->rows;
    pp_way_config(config, &tried, &one);
    PP_TRY(pp_points(&one, schedules, &way->points, &way->npoints));
    if (workers % each)
        tell_remainder(workers, shape, way);
    else if (config->global_rows % replicas)
        tell_rows(replicas, config->global_rows, way);
    else
        way->replicas = tried.replicas, way->rows = tried.rows;
    return PP_OK;
}

/* Appends ways for one T, C and N: for each P of --stages, else for each P up to the layers that divides the workers.
 * There is at least one way; if it is impossible, it says why. */
static pp_status find_shapes(const struct pp_config *config, const struct pp_schedules *schedules, int workers,
                             struct pp_point shape, const struct pp_way *degrees, struct pp_way *ways, int *n)
{
    const bool given = pp_config_given(config, stages);
    for (int i = 0; given && i < config->stages.n; i++) {
        shape.ranks = config->stages.v[i];
        ways[*n] = *degrees;
        PP_TRY(add(config, schedules, workers, &shape, &ways[(*n)++]));
    }
    for (int p = 1; !given && p <= workers && p <= config->model.layers; p++) {
        shape.ranks = p;
        if (p > 1 && workers % ((int64_t)p * shape.tensor * degrees->context) != 0) continue;
        ways[*n] = *degrees;
        PP_TRY(add(config, schedules, workers, &shape, &ways[(*n)++]));
    }
    return PP_OK;
}

/* Number of combinations of C and N. */
static int ndegrees(const struct pp_config *config) { return config->context_parallel.n * config->expert_parallel.n; }

/* A way with the i-th combination of C and N, and nothing else. */
static struct pp_way degrees_of(const struct pp_config *config, int i)
{
    const struct pp_ints *contexts = &config->context_parallel, *experts = &config->expert_parallel;
    return (struct pp_way){.context = contexts->v[i / experts->n], .experts = experts->v[i % experts->n]};
}

/* The way with all P and T of the config. */
static pp_status add_all(const struct pp_config *config, const struct pp_schedules *schedules, struct pp_way *way)
{
    struct pp_config one = *config;
    way->replicas = config->replicas;
    way->rows = config->rows;
    set_degrees(way, &one);
    return pp_points(&one, schedules, &way->points, &way->npoints);
}

static pp_status find(const struct pp_config *config, const struct pp_schedules *schedules, struct pp_way *ways, int *n)
{
    const int each = ndegrees(config);
    for (int i = 0; i < each && config->workers.n == 0; i++) {
        ways[*n] = degrees_of(config, i);
        PP_TRY(add_all(config, schedules, &ways[(*n)++]));
    }
    for (int w = 0; w < config->workers.n; w++)
        for (int i = 0; i < config->tensor.n * each; i++) {
            const struct pp_way degrees = degrees_of(config, i % each);
            struct pp_config one = *config;
            set_degrees(&degrees, &one);
            if (i / each >= one.tensor.n)
                continue; /* of --auto, which leaves workers that share experts whole tensors */
            const struct pp_point shape = {.tensor = one.tensor.v[i / each]};
            PP_TRY(find_shapes(config, schedules, config->workers.v[w], shape, &degrees, ways, n));
        }
    return PP_OK;
}

static int64_t most_ways(const struct pp_config *config)
{
    const bool given = pp_config_given(config, stages);
    int64_t most = 1;
    for (int w = 0; w < config->workers.n; w++) {
        const int workers = config->workers.v[w],
                  pipelines = workers < config->model.layers ? workers : config->model.layers;
        most += (int64_t)config->tensor.n * (given ? config->stages.n : pipelines);
    }
    return most * ndegrees(config);
}

pp_status pp_ways(const struct pp_config *config, const struct pp_schedules *schedules, struct pp_way **ways, int *n)
{
    *n = 0;
    PP_TRY(PP_NEW(ways, most_ways(config)));
    return find(config, schedules, *ways, n);
}

void pp_ways_free(struct pp_way *ways, int n)
{
    for (int i = 0; i < n; i++) free(ways[i].points);
    free(ways);
}

/* Does one stage on one rank hold a single microbatch? Of an order that has a leaner one all are held, of zb-auto:N
 * what its number leaves room for, and what a file's order holds nobody has looked at. */
static bool is_plain(const struct pp_point *point, const struct pp_schedules *schedules)
{
    struct pp_schedule_found found;
    return point->virtual_stages == 1 && schedules->find(point->schedule, &found) == PP_OK &&
           !found.leaner && found.number == 0 && found.ranks == 0 &&
           schedules->check(point->schedule, 1, 1, point->chunks) == PP_OK;
}

static bool has_plain(const struct pp_way *way, const struct pp_schedules *schedules)
{
    int i = 0;
    while (i < way->npoints && !is_plain(&way->points[i], schedules)) i++;
    return i < way->npoints;
}

pp_status pp_way_remove_pointless(struct pp_way *way, const struct pp_schedules *schedules, pp_left_out_fn left_out,
                                  void *context)
{
    const int n = way->npoints;
    if (!way->workers || way->points[0].ranks > 1 || !has_plain(way, schedules)) return PP_OK;
    way->npoints = 0;
    for (int i = 0; i < n; i++) {
        struct pp_point *point = &way->points[i];
        if (point->virtual_stages > 1)
            PP_TRY(left_out(context, point,
                            "one rank has no bubble that a --schedule of several stages on it would make smaller"));
        else
            way->points[way->npoints++] = *point;
    }
    return PP_OK;
}
