/* SPDX-License-Identifier: Apache-2.0
 *
 * The points of a sweep: all combinations of the lists of the config.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/job/job.h"
#include "core/shape/pieces.h"

static pp_status known(const struct pp_schedules *schedules, const char *name, struct pp_schedule_found *out)
{
    char near[64];
    pp_status status = schedules->find(name, out);
    if (status != PP_USAGE) return status;
    if (access(name, F_OK) == 0)
        return pp_fail(PP_USAGE, "--schedule: there is no schedule \"%s\"; the file of that name is ./%s", name, name);
    const size_t called = strcspn(name, ":");
    char plain[64];
    struct pp_schedule_found without;
    snprintf(plain, sizeof plain, "%.*s", (int)called, name);
    if (name[called] && schedules->find(plain, &without) == PP_OK)
        return pp_fail(PP_USAGE,
                       "--schedule: there is no schedule \"%s\": behind %s: stands a whole number from 1 to %d", name,
                       plain, PP_MOST_NUMBER);
    const char *nearest = pp_nearest(name, schedules->names(), near, sizeof near);
    if (nearest)
        return pp_fail(PP_USAGE, "--schedule: there is no schedule \"%s\"; did you mean \"%s\"? (--list shows all)",
                       name, nearest);
    return pp_fail(PP_USAGE, "--schedule: there is no schedule \"%s\"; the schedules are %s", name, schedules->names());
}

/* How replicas share. */
struct sharing {
    int zero, degree; /* pp_point.zero, pp_point.shard_degree */
};
enum { MOST_SHARINGS = PP_LIST_MAX * PP_LIST_MAX };

/* The sharing of a point for these values of --zero and --shard-degree. Different values can mean the same: groups of
 * one replica share nothing, and a group of all replicas is degree 0. Impossible values stay as they are. */
static struct sharing sharing_of(const struct pp_config *config, int zero, int degree)
{
    const int copies = pp_config_copies(config), group = pp_config_shard_group(config, degree);
    const int sharers = pp_config_holders(config) / copies * group;
    if (zero > 0 && pp_config_check_shard_degree(config, degree) != PP_OK) return (struct sharing){zero, degree};
    if (zero == 0 || sharers == 1) return (struct sharing){0, 0};
    return (struct sharing){zero, group < copies ? degree : 0};
}

void pp_point_share(const struct pp_config *config, int zero, int degree, struct pp_point *point)
{
    const struct sharing sharing = sharing_of(config, zero, degree);
    point->zero = sharing.zero;
    point->shard_degree = sharing.degree;
}

/* Writes all different sharings to out[] (NULL: only counts them), and returns their number. */
static int sharings_of(const struct pp_config *config, struct sharing *out)
{
    struct sharing found[MOST_SHARINGS];
    int n = 0;
    for (int i = 0; i < config->zero.n * config->shard_degree.n; i++) {
        const int zero = config->zero.v[i / config->shard_degree.n],
                  degree = config->shard_degree.v[i % config->shard_degree.n];
        int same = 0;
        found[n] = sharing_of(config, zero, degree);
        while (found[same].zero != found[n].zero || found[same].degree != found[n].degree) same++;
        n += same == n;
    }
    if (out) memcpy(out, found, (size_t)n * sizeof *out);
    return n;
}

/* A schedule of --schedule. */
struct asked {
    const char *text;
    struct pp_schedule_found found;
    const struct pp_ints *stages, *chunks; /* P and chunks to try: those of the config, or these: */
    struct pp_ints own_stages, own_chunks;
};

/* Values of --overlap-expert-exchange to try. */
static const struct pp_ints *exchanges_of(const struct pp_config *config)
{
    static const struct pp_ints nothing = {1, {0}};
    return pp_config_expert_parallel(config) > 1 ? &config->overlap_expert_exchange : &nothing;
}

int pp_point_sum_pieces(const struct pp_config *config, int pieces, int chunks)
{
    if (pieces > 0) return pieces;
    const double rows = ceil((double)config->rows / chunks), tokens = rows * config->tokens / pp_config_context(config);
    return pp_pieces_of_bytes(tokens * config->model.d_model * pp_element_bytes(config->model.precision));
}

/* Writes the points of a shape, with all exchanges, sharings, chunks and checkpoint modes; returns their number. */
static int of_shape(const struct pp_config *config, const struct pp_ints *chunks, const struct pp_point *shape,
                    struct pp_point *out)
{
    struct sharing sharings[MOST_SHARINGS];
    const struct pp_ints *exchanges = exchanges_of(config);
    const int nsharings = sharings_of(config, sharings);
    int n = 0;
    for (int s = 0; s < nsharings * exchanges->n; s++)
        for (int c = 0; c < chunks->n; c++)
            for (int k = 0; k < config->checkpoint.n; k++) {
                out[n] = *shape;
                out[n].exchange_pieces = exchanges->v[s / nsharings];
                out[n].zero = sharings[s % nsharings].zero;
                out[n].shard_degree = sharings[s % nsharings].degree;
                out[n].chunks = chunks->v[c];
                out[n].sum_pieces = pp_point_sum_pieces(config, shape->sum_pieces, chunks->v[c]);
                out[n++].checkpoint = config->checkpoint.v[k];
            }
    return n;
}

/* Number of values of --overlap-tensor-sums to try: one if T = 1, where they make no difference. */
static int sums_of(const struct pp_config *config, int tensor)
{
    return tensor > 1 ? config->overlap_tensor_sums.n : 1;
}

/* Number of shapes of a schedule with T = tensor: combinations of pieces of sums, P and V. */
static int shapes_of(const struct pp_config *config, const struct asked *asked, int tensor)
{
    const int nv = config->virtual_stages.n;
    return sums_of(config, tensor) * asked->stages->n * (nv ? nv : 1);
}

static int of_tensor(const struct pp_config *config, const struct asked *asked, int tensor, struct pp_point *out)
{
    const struct pp_ints *v = &config->virtual_stages, *stages = asked->stages;
    const int nv = v->n ? v->n : 1, shapes = shapes_of(config, asked, tensor);
    int n = 0;
    for (int i = 0; i < shapes; i++) {
        const struct pp_point shape = {.schedule = asked->text,
                                       .file_chunks = asked->chunks == &asked->own_chunks,
                                       .tensor = tensor,
                                       .sum_pieces = tensor > 1 ? config->overlap_tensor_sums.v[i / nv / stages->n] : 1,
                                       .ranks = stages->v[i / nv % stages->n],
                                       .virtual_stages = v->n ? v->v[i % nv] : asked->found.virtual_stages};
        n += of_shape(config, asked->chunks, &shape, out + n);
    }
    return n;
}

/* Sets what to try of P and chunks: what the user says, else what a schedule file says, else the config. */
static void set_lists(const struct pp_config *config, struct asked *asked)
{
    const bool stages = pp_config_given(config, stages) || config->workers.n > 0;
    const bool chunks = pp_config_given(config, chunks) || pp_config_given(config, micro_batch_size);
    const bool file = asked->found.ranks > 0;
    asked->own_stages = (struct pp_ints){1, {asked->found.ranks}};
    asked->own_chunks = (struct pp_ints){1, {asked->found.microbatches}};
    asked->stages = file && !stages ? &asked->own_stages : &config->stages;
    asked->chunks = file && !chunks ? &asked->own_chunks : &config->chunks;
}

static bool are_one(const struct pp_schedule_found *a, const struct pp_schedule_found *b)
{
    return strcmp(a->name, b->name) == 0 && a->number == b->number;
}

/* Finds the schedules of --schedule. Lists have no value twice (core/options/options.h), but a schedule may be named in
 * several spellings; it is kept once. */
static pp_status find_schedules(const struct pp_config *config, const struct pp_schedules *schedules,
                                struct asked asked[PP_LIST_MAX], int *n)
{
    *n = 0;
    for (int i = 0; i < config->schedule.n; i++) {
        int same = 0;
        asked[*n].text = config->schedule.v[i];
        PP_TRY(known(schedules, asked[*n].text, &asked[*n].found));
        while (!are_one(&asked[same].found, &asked[*n].found)) same++;
        set_lists(config, &asked[*n]);
        *n += same == *n;
    }
    return PP_OK;
}

pp_status pp_points_first(const struct pp_config *config, const struct pp_schedules *schedules, struct pp_point *out)
{
    struct asked asked = {.text = config->schedule.v[0]};
    const struct pp_ints *v = &config->virtual_stages;
    PP_TRY(known(schedules, asked.text, &asked.found));
    set_lists(config, &asked);
    *out = (struct pp_point){.schedule = asked.text,
                             .ranks = asked.stages->v[0],
                             .virtual_stages = v->n ? v->v[0] : asked.found.virtual_stages,
                             .chunks = asked.chunks->v[0],
                             .checkpoint = config->checkpoint.v[0]};
    return PP_OK;
}

pp_status pp_points(const struct pp_config *config, const struct pp_schedules *schedules, struct pp_point **points,
                    int *n)
{
    struct asked asked[PP_LIST_MAX];
    const struct pp_ints *tensor = &config->tensor;
    int64_t total = 0;
    int nschedules;
    *n = 0;
    PP_TRY(find_schedules(config, schedules, asked, &nschedules));
    for (int s = 0; s < nschedules; s++)
        for (int t = 0; t < tensor->n; t++)
            total += (int64_t)shapes_of(config, &asked[s], tensor->v[t]) * asked[s].chunks->n;
    total *= (int64_t)sharings_of(config, NULL) * exchanges_of(config)->n * config->checkpoint.n;
    if (total > PP_MOST_POINTS)
        return pp_fail(PP_USAGE, "the lists make %lld configurations, and there can be at most %d; name fewer",
                       (long long)total, PP_MOST_POINTS);
    PP_TRY(PP_NEW(points, total));
    for (int s = 0; s < nschedules; s++)
        for (int t = 0; t < tensor->n; t++) *n += of_tensor(config, &asked[s], tensor->v[t], *points + *n);
    return PP_OK;
}

const char *pp_sharing_text(int zero, int degree, char *buf, size_t size)
{
    char groups[24] = "";
    if (degree) snprintf(groups, sizeof groups, " in groups of %d", degree);
    if (zero)
        snprintf(buf, size, ", zero %d%s", zero, groups);
    else
        buf[0] = '\0';
    return buf;
}

static const char *beside_text(int sums, int exchanges, char buf[PP_BESIDE_TEXT])
{
    char of_sums[40] = "", of_exchanges[48] = "";
    if (sums > 1) snprintf(of_sums, sizeof of_sums, ", sums in up to %d pieces", sums);
    if (exchanges == 1) snprintf(of_exchanges, sizeof of_exchanges, ", exchanges beside products");
    if (exchanges > 1) snprintf(of_exchanges, sizeof of_exchanges, ", exchanges in up to %d pieces", exchanges);
    snprintf(buf, PP_BESIDE_TEXT, "%s%s", of_sums, of_exchanges);
    return buf;
}

const char *pp_beside_text(const struct pp_shape *shape, char buf[PP_BESIDE_TEXT])
{
    return beside_text(pp_shape_sum_pieces(shape), pp_shape_exchange_pieces(shape), buf);
}

const char *pp_point_text(const struct pp_point *point, char buf[PP_POINT_TEXT])
{
    char virtual_stages[16] = "", checkpoint[40] = "", tensor[32] = "", beside[PP_BESIDE_TEXT], zero[32] = "",
         mode[PP_CHECKPOINT_TEXT];
    if (point->virtual_stages > 1) snprintf(virtual_stages, sizeof virtual_stages, " x %d", point->virtual_stages);
    if (point->checkpoint != PP_CHECKPOINT_NEVER)
        snprintf(checkpoint, sizeof checkpoint, ", checkpoint %s", pp_checkpoint_text(point->checkpoint, mode));
    if (point->tensor > 1) snprintf(tensor, sizeof tensor, " x tensor %d", point->tensor);
    pp_sharing_text(point->zero, point->shard_degree, zero, sizeof zero);
    beside_text(point->sum_pieces, point->exchange_pieces, beside);
    snprintf(buf, PP_POINT_TEXT, "%.150s, %d stage%s%s%s%s%s, %d chunk%s%s", point->schedule, point->ranks,
             pp_plural(point->ranks), virtual_stages, tensor, beside, zero, point->chunks, pp_plural(point->chunks),
             checkpoint);
    return buf;
}

/* PP_USAGE for more chunks than rows. The message says where the number is from if the user did not give it: the preset
 * or a schedule file. */
static pp_status check_chunks(const struct pp_config *config, const struct pp_point *point)
{
    const int chunks = point->chunks;
    const bool shared = config->workers.n > 0;
    const bool given = pp_config_given(config, chunks) || pp_config_given(config, micro_batch_size);
    char from[PP_POINT_TEXT] = "";
    if (chunks <= config->rows) return PP_OK;
    if (point->file_chunks)
        snprintf(from, sizeof from, " of --schedule %.150s", point->schedule);
    else if (!given && config->preset && pp_ints_have(&config->chunks, chunks))
        snprintf(from, sizeof from, " of --preset %s", config->preset);
    return pp_fail(PP_USAGE, "--chunks %d%s is more than the %d row%s of a %s; use at most %d chunk%s, or more --%s",
                   chunks, from, config->rows, pp_plural(config->rows), shared ? "replica" : "batch", config->rows,
                   pp_plural(config->rows), shared ? "global-rows" : "rows");
}

/* PP_USAGE for more stages than layers. The message names --split if embedding and decoder would be stages enough. */
static pp_status check_layers(const struct pp_config *config, const struct pp_point *point)
{
    const struct pp_shape *model = &config->model;
    const int64_t stages = (int64_t)point->ranks * point->virtual_stages;
    const int ends = pp_split_ends(config->split);
    if (stages <= model->layers + ends) return PP_OK;
    return pp_fail(PP_USAGE,
                   "%lld stages (--stages %d x --virtual %d) need as many layers, and the model has %d; use fewer "
                   "stages or more --layers%s",
                   (long long)stages, point->ranks, point->virtual_stages, model->layers,
                   ends == 0 && stages <= model->layers + 2
                       ? ", or a --split that begins or ends with 0: a stage for embedding or decoder alone"
                       : "");
}

int64_t pp_point_workers(const struct pp_config *config, const struct pp_point *point)
{
    return (int64_t)point->ranks * config->replicas * pp_point_tensor(point) * pp_config_context(config);
}

pp_status pp_point_check(const struct pp_config *config, const struct pp_point *point)
{
    const int tensor = pp_point_tensor(point), context = pp_config_context(config);
    const int64_t devices = (int64_t)point->ranks * config->replicas, workers = pp_point_workers(config, point);
    PP_TRY(check_layers(config, point));
    if (devices > PP_MOST_WORKERS || workers > PP_MOST_WORKERS)
        return pp_fail(PP_USAGE,
                       "--stages %d x --replicas %d x --tensor %d x --context-parallel %d are %lld workers; there can "
                       "be at most %d",
                       point->ranks, config->replicas, tensor, context, (long long)workers, PP_MOST_WORKERS);
    PP_TRY(pp_config_check_expert_parallel(pp_config_expert_parallel(config), config->replicas));
    PP_TRY(pp_config_check_values(config, point->checkpoint, point->zero));
    if (point->zero) PP_TRY(pp_config_check_shard_degree(config, point->shard_degree));
    if (config->model.sequence && tensor > 1 && config->batch_w > 1)
        return pp_fail(PP_USAGE,
                       "--sequence-parallel gathers one microbatch at a time, so there is no --batch-w %d with it",
                       config->batch_w);
    return check_chunks(config, point);
}
