/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/advice.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/memory_text.h"
#include "core/base/text.h"
#include "sim/costs.h"
#include "sim/split.h"
#include "sim/ways.h"

/* Changes to other pipelines, by the number of devices that they need. Tensor ranks stand before stages: they also
 * divide activations, and leave the bubble as it is. Before all these, parameters, gradients and optimizer are shared
 * among as many replicas as there are (share()). */
static const struct layout_change {
    int tensor, stages; /* factors of T and P */
    bool from_stages;   /* T's workers were stages: P is divided by T's factor */
} layouts[] = {{2, 1},  {1, 2}, {4, 1}, {1, 4},  {2, 2}, {8, 1},  {1, 8},       {4, 2},       {8, 2},
               {1, 16}, {4, 4}, {8, 4}, {1, 32}, {8, 8}, {1, 64}, {2, 1, true}, {4, 1, true}, {8, 1, true}};

/* Changes that save memory in the same layout. Smaller microbatches take a little time, recomputation takes more. */
enum { ALL_LAYERS = PP_CHECKPOINT_SOME_LAYERS }; /* stands for as many layers as the model has */
static const struct saving {
    bool single_rows; /* one row in each microbatch */
    int checkpoint;   /* the new mode; PP_CHECKPOINT_NEVER: no change */
} savings[] = {{false, PP_CHECKPOINT_NEVER},     {true, PP_CHECKPOINT_NEVER},  {false, PP_CHECKPOINT_ACTIVATION},
               {true, PP_CHECKPOINT_ACTIVATION}, {false, ALL_LAYERS},          {true, ALL_LAYERS},
               {false, PP_CHECKPOINT_LAYERS},    {true, PP_CHECKPOINT_LAYERS}, {false, PP_CHECKPOINT_ALWAYS},
               {true, PP_CHECKPOINT_ALWAYS}};

enum {
    LAYOUTS = sizeof layouts / sizeof *layouts,
    SAVINGS = sizeof savings / sizeof *savings,
    HOST_DEVICES = 8,             /* where the machine does not say how many a host has; most T C that are proposed */
    MOST_WORK = 1 << 21,          /* of all trials, in tasks that compute: takes a few seconds */
    MOST_SHARING = MOST_WORK / 2, /* of these, before other layouts are tried */
    WORK_OF_TRIAL = 200,          /* added for each */
    FIXED = 1 << PP_BYTES_PARAM | 1 << PP_BYTES_GRAD | 1 << PP_BYTES_STATE
};

struct search {
    const struct pp_predictor *p;
    double limit; /* bytes that a device has */
    bool checkpointed;
    int64_t work, most; /* of all trials so far; that there may be */
    /* The best change so far: of those that fit the one with the quickest step, else the one after which large[0] needs
     * least. */
    struct pp_large before, after;
    const struct saving *saving; /* NULL: nothing saves memory */
    bool fits;
    double step_ns; /* if it fits */
};

static int rows_of(const struct pp_config *config, const struct pp_large *large)
{
    return config->workers.n > 0 ? config->global_rows / large->replicas : config->rows;
}

const char *pp_large_text(const struct pp_large *large, char buf[PP_LARGE_TEXT])
{
    char text[PP_POINT_TEXT], context[32] = "", experts[32] = "", replicas[32] = "";
    if (large->context > 1) snprintf(context, sizeof context, ", context parallel %d", large->context);
    if (large->experts > 1) snprintf(experts, sizeof experts, ", expert parallel %d", large->experts);
    if (large->replicas > 1) snprintf(replicas, sizeof replicas, ", %d replicas", large->replicas);
    snprintf(buf, PP_LARGE_TEXT, "%s%s%s%s", pp_point_text(&large->point, text), context, experts, replicas);
    return buf;
}

/* With ZeRO 2 and 3 each forward or backward is a task for each layer, and two that move what belongs to it. */
static int64_t work_of(const struct search *s, const struct pp_point *point)
{
    const int64_t stages = (int64_t)point->ranks * point->virtual_stages;
    const int64_t parts = point->zero >= 2 ? 3 * (s->p->config->model.layers / stages + 2) : 1;
    return (stages * point->chunks * parts + WORK_OF_TRIAL) * pp_split_cuts(s->p);
}

/* Makes the predictor of a configuration, whose config goes to *config. */
static struct pp_predictor predictor_of(const struct search *s, struct pp_large *large, struct pp_config *config)
{
    struct pp_predictor p = *s->p;
    struct pp_point *point = &large->point;
    const int workers = point->ranks * pp_point_tensor(point) * large->context * large->replicas;
    const struct pp_way way = {.workers = p.config->workers.n > 0 ? workers : 0,
                               .replicas = large->replicas,
                               .rows = rows_of(p.config, large),
                               .context = large->context,
                               .experts = large->experts,
                               .points = point,
                               .npoints = 1};
    pp_way_config(p.config, &way, config);
    p.config = config;
    if (point->tensor > 1 && pp_ints_have(&config->overlap_tensor_sums, 0))
        point->sum_pieces = pp_point_sum_pieces(config, 0, point->chunks);
    if (point->zero > 0 && config->shard_degree.n == 1)
        pp_point_share(config, point->zero, config->shard_degree.v[0], point);
    return p;
}

/* Sets the bytes of a configuration; they are infinite if it is impossible. */
static void find_bytes(struct search *s, struct pp_large *large)
{
    struct pp_config config;
    const struct pp_predictor p = predictor_of(s, large, &config);
    struct pp_job *job;
    large->bytes = large->fixed = INFINITY;
    s->work += work_of(s, &large->point);
    if (pp_predict_job(&p, &large->point, &job) != PP_OK) return;
    const int sharers = pp_predict_sharers(&p, job);
    if (sharers == 1 || pp_cost_check_sharers(job) == PP_OK) {
        large->bytes = (double)pp_device_bytes(job, sharers, PP_ALL_BYTES);
        large->fixed = (double)pp_device_bytes(job, sharers, FIXED);
    }
    pp_job_free(job);
}

/* The time of a step; infinite if it cannot be predicted. */
static double step_ns_of(struct search *s, struct pp_large *large)
{
    struct pp_config config;
    const struct pp_predictor p = predictor_of(s, large, &config);
    struct pp_prediction prediction;
    s->work += work_of(s, &large->point);
    if (pp_predict(&p, &large->point, false, &prediction) != PP_OK) return INFINITY;
    const double ns = (double)prediction.result.batch_ns;
    pp_prediction_free(&prediction);
    return ns;
}

/* Microbatches of --micro-batch-size. */
static int chunks_of(int rows, int size) { return (rows + size - 1) / size; }

/* With --workers: gives *with fewer replicas, or stages, so that the number of workers stays as it is. */
static bool keep_workers(const struct pp_config *config, const struct layout_change *change, struct pp_large *with)
{
    const int factor = change->tensor * change->stages, rows = rows_of(config, with);
    const struct pp_ints *sizes = &config->micro_batch_size, *counts = &config->chunks;
    struct pp_point *point = &with->point;
    if (change->from_stages) {
        if (point->ranks % change->tensor != 0 || pp_config_given(config, stages)) return false;
        point->ranks /= change->tensor;
        return true;
    }
    if (with->replicas % factor != 0 || (change->stages > 1 && !pp_config_given(config, stages))) return false;
    with->replicas /= factor;
    for (int i = 0, chunks = point->chunks; i < sizes->n; i++)
        if (chunks_of(rows, sizes->v[i]) == chunks) point->chunks = chunks_of(rows * factor, sizes->v[i]);
    for (int i = 0, chunks = point->chunks; i < counts->n && sizes->n == 0; i++)
        if (pp_config_chunks(config, counts->v[i], rows) == chunks)
            point->chunks = pp_config_chunks(config, counts->v[i], rows * factor);
    if (with->replicas * with->context == 1) point->zero = point->shard_degree = 0;
    return true;
}

/* Gives *with another ZeRO stage (0: it stays as it is), and N workers that share experts; false if that is impossible,
 * or in the lists. */
static bool share(const struct pp_config *config, int zero, int experts, struct pp_large *with)
{
    struct pp_point *point = &with->point;
    const bool other = experts != with->experts;
    if (zero && (with->replicas * with->context == 1 || (other && zero == point->zero))) return false;
    if (other && (with->replicas % experts || config->model.experts % experts)) return false;
    if (zero) point->zero = zero;
    if (other && with->experts == 1) point->exchange_pieces = config->overlap_expert_exchange.v[0];
    with->experts = experts;
    return !pp_ints_have(&config->zero, point->zero) || (other && !pp_ints_have(&config->expert_parallel, experts));
}

/* Gives *with another layout; false if that changes nothing, is impossible, or is in the lists. */
static bool change_layout(const struct pp_predictor *p, const struct layout_change *change, struct pp_large *with)
{
    const struct pp_config *config = p->config;
    struct pp_point *point = &with->point;
    const int host = p->machine.host_devices > 0 ? p->machine.host_devices : HOST_DEVICES;
    point->tensor = pp_point_tensor(point) * change->tensor;
    point->ranks *= change->stages;
    if (change->tensor > 1 && point->tensor * with->context > host) return false;
    if (change->tensor > 1) point->sum_pieces = config->overlap_tensor_sums.v[0];
    if (config->workers.n > 0) return keep_workers(config, change, with);
    return !change->from_stages &&
           (!pp_ints_have(&config->tensor, point->tensor) || !pp_ints_have(&config->stages, point->ranks));
}

/* Changes rows and checkpoints of *with, and its order to a leaner one if there is one; false if that makes no
 * configuration that was not tried yet. changed: *with has another layout already. */
static bool change_use(const struct search *s, const struct saving *saving, bool changed, struct pp_large *with)
{
    struct pp_point *point = &with->point;
    const struct pp_schedules *schedules = s->p->schedules;
    struct pp_schedule_found found;
    const int rows = rows_of(s->p->config, with);
    if (schedules->find(point->schedule, &found) != PP_OK) return false;
    if (saving->single_rows && point->chunks >= rows) return false;
    if (saving->single_rows) point->chunks = rows;
    if (found.leaner && schedules->check(found.leaner, point->ranks, point->virtual_stages, point->chunks) == PP_OK)
        point->schedule = found.leaner, changed = true;
    if (saving->checkpoint == PP_CHECKPOINT_NEVER) return changed || saving->single_rows;
    point->checkpoint = saving->checkpoint;
    if (saving->checkpoint == ALL_LAYERS) point->checkpoint += s->p->config->model.layers - 1;
    return !s->checkpointed;
}

/* Is the change better than the best one so far? only_fits: only if something fits after it. */
static bool is_better(struct search *s, struct pp_large *after, bool only_fits)
{
    if (after->bytes > s->limit) return !s->fits && !only_fits && after->bytes < s->after.bytes;
    const bool affordable = s->work + work_of(s, &after->point) <= s->most;
    const double ns = affordable ? step_ns_of(s, after) : INFINITY;
    if (s->fits && ns >= s->step_ns) return false;
    s->fits = true;
    s->step_ns = ns;
    return true;
}

/* Tries savings on with[n], which were before[n] in another layout, or are before[n]. */
static void try_savings(struct search *s, const struct pp_large *before, struct pp_large *with, int n, bool changed)
{
    for (int k = 0; k < SAVINGS; k++)
        for (int i = 0; i < n; i++) {
            struct pp_large after = with[i];
            if (with[i].fixed > s->limit || !change_use(s, &savings[k], changed, &after)) continue;
            if (s->work + work_of(s, &after.point) > s->most) continue;
            find_bytes(s, &after);
            if (with[i].fixed == 0 && after.fixed < INFINITY) with[i].fixed = after.fixed;
            if (!is_better(s, &after, changed || i > 0)) continue;
            s->saving = &savings[k];
            s->before = before[i];
            s->after = after;
        }
}

/* Tries all ways to share more among the same devices. */
static void try_sharing(struct search *s, const struct pp_large *large)
{
    const struct pp_config *config = s->p->config;
    const int most = config->model.experts < large->replicas ? config->model.experts : large->replicas;
    for (int experts = large->experts; experts == large->experts || experts <= most; experts *= 2)
        for (int zero = 0; zero <= 3; zero++) {
            struct pp_large with = *large;
            with.fixed = 0;
            if (share(config, zero, experts, &with)) try_savings(s, large, &with, 1, true);
        }
}

static void search(struct search *s, struct pp_large *large, int n)
{
    find_bytes(s, &large[0]);
    s->after = large[0];
    try_savings(s, large, large, n, false);
    s->most = s->work > MOST_SHARING ? s->work : MOST_SHARING;
    if (!s->fits) try_sharing(s, large);
    s->most = MOST_WORK;
    for (int i = 0; i < LAYOUTS && !s->fits; i++) {
        struct pp_large with = large[0];
        with.fixed = 0;
        if (change_layout(s->p, &layouts[i], &with)) try_savings(s, large, &with, 1, true);
    }
}

/* Writes the options by which the best change differs. */
static void write_options(const struct search *s, char *buf, size_t size)
{
    const struct pp_point *before = &s->before.point, *after = &s->after.point;
    const bool schedule = before->schedule != after->schedule, rows = s->saving->single_rows;
    const bool checkpoint = before->checkpoint != after->checkpoint;
    /* With --expert-parallel a preset's T counts no more (pp_config_set_expert_parallel()). */
    const bool loses_tensor = s->before.experts != s->after.experts && !pp_config_given(s->p->config, tensor);
    const struct {
        const char *option;
        int before, after;
    } numbers[] = {{"zero", before->zero, after->zero},
                   {"expert-parallel", s->before.experts, s->after.experts},
                   {"tensor", loses_tensor ? 1 : pp_point_tensor(before), pp_point_tensor(after)},
                   {"stages", before->ranks, after->ranks}};
    char mode[PP_CHECKPOINT_TEXT];
    struct pp_text text = pp_text_in(buf, size);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].before != numbers[i].after && numbers[i].after > 0) /* ZeRO of one replica is none */
            pp_text_add(&text, " --%s %d", numbers[i].option, numbers[i].after);
    if (schedule) pp_text_add(&text, " --schedule %s", after->schedule);
    if (rows) pp_text_add(&text, " --micro-batch-size 1");
    if (rows && pp_config_given(s->p->config, chunks)) pp_text_add(&text, " in place of --chunks");
    if (checkpoint) pp_text_add(&text, " --checkpoint %s", pp_checkpoint_text(after->checkpoint, mode));
}

/* What helps where parameters, gradients and optimizer alone are too large. */
static const char *more(const struct pp_config *config)
{
    const bool experts = config->model.experts > 0;
    if (config->gpus > 0) return "--gpus";
    if (config->workers.n > 0)
        return experts ? "--workers, --tensor, --zero or --expert-parallel" : "--workers, --tensor or --zero";
    return experts ? "--stages, --tensor, or --replicas with --zero or --expert-parallel"
                   : "--stages, --tensor, or --replicas with --zero";
}

/* Who has not asked for all that is usual may do so. */
static const char *further(const struct pp_config *config)
{
    return config->workers.n > 0 && !config->usual ? "; --auto tries more ways" : "";
}

const char *pp_advice(const struct pp_predictor *p, struct pp_large *large, int n, bool checkpointed,
                      char buf[PP_ADVICE_TEXT])
{
    struct search s = {.p = p, .limit = (double)pp_predict_memory(p), .checkpointed = checkpointed, .most = MOST_WORK};
    char options[256] = "", text[PP_LARGE_TEXT], fixed[96] = "", size[PP_MEMORY_TEXT];
    search(&s, large, n);
    const bool hopeless = large[0].fixed > s.limit && large[0].fixed < INFINITY;
    if (s.saving) write_options(&s, options, sizeof options);
    if (hopeless)
        snprintf(fixed, sizeof fixed, "; parameters, gradients and optimizer alone need %s of a device",
                 pp_memory_text(large[0].fixed, size));
    if (s.fits)
        snprintf(buf, PP_ADVICE_TEXT, "%s; with%s this fits: %s (%s)", fixed, options, pp_large_text(&s.after, text),
                 pp_memory_text(s.after.bytes, size));
    else if (hopeless)
        snprintf(buf, PP_ADVICE_TEXT, "%s: it takes more %s%s", fixed, more(p->config), further(p->config));
    else if (s.saving)
        snprintf(buf, PP_ADVICE_TEXT, ";%s saves memory, but it still needs %s%s", options,
                 pp_memory_text(s.after.bytes, size), further(p->config));
    else
        snprintf(buf, PP_ADVICE_TEXT, "%s", further(p->config));
    return buf;
}
