/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/remarks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/memory_text.h"
#include "core/base/stats.h"
#include "sim/machine_calls.h"

static pp_status tell_model(const struct pp_predictor *p)
{
    struct pp_shape shape;
    struct pp_model *model;
    char text[PP_MODEL_TEXT];
    pp_config_shape(p->config, &shape);
    shape.context = shape.expert_parallel = 1; /* it is the same for any, and the first of a list may be impossible */
    PP_TRY(p->ops->create(&shape, &(struct pp_cut){.stages = 1}, &model));
    pp_info("model       %s", pp_model_text(model, text, sizeof text));
    p->ops->destroy(model);
    return PP_OK;
}

static void tell_batch(const struct pp_config *config)
{
    const double tokens = (double)config->rows * config->replicas * config->tokens; /* may be too large for an int */
    char who[48] = "", on[48] = "";
    const int n = config->workers.n, workers = n > 0 ? config->workers.v[0] : 0;
    if (n > 1)
        snprintf(on, sizeof on, "; on %d numbers of workers", n);
    else if (n > 0)
        snprintf(on, sizeof on, "; on %d worker%s", workers, pp_plural(workers));
    else if (config->replicas > 1)
        snprintf(who, sizeof who, " for each of %d replicas", config->replicas);
    pp_info("batch       %d row%s of %d token%s%s, %.0f token%s in all%s", config->rows, pp_plural(config->rows),
            config->tokens, pp_plural(config->tokens), who, tokens, pp_plural(tokens > 1 ? 2 : 1), on);
}

struct cut {
    int chunks, rows;       /* as asked for */
    int microbatches, each; /* their number, and the rows of each */
};

/* pp_chunk_rows() makes all microbatches but the last equally large, rounded up. Usually that makes one fewer than
 * asked for, or a few of many. Are they so many fewer that it changes memory and bubble? */
static bool far_fewer(int rows, int chunks, struct cut *out)
{
    const int each = (rows + chunks - 1) / chunks, made = (rows + each - 1) / each, missing = chunks - made;
    *out = (struct cut){chunks, rows, made, each};
    return chunks <= rows && missing > 1 && missing > chunks / 10;
}

/* A schedule file has a number of its own. */
static bool has_chunks(const struct pp_way *way, int chunks)
{
    int i = 0;
    while (i < way->npoints && way->points[i].chunks != chunks) i++;
    return i < way->npoints;
}

static void tell_cuts(const struct pp_config *config, const struct pp_way *ways, int nways)
{
    struct cut cut, first = {0};
    int cuts = 0;
    char others[64] = "";
    for (int i = 0; i < nways && config->micro_batch_size.n == 0; i++)
        for (int c = 0; c < config->chunks.n && !ways[i].impossible[0]; c++)
            if (has_chunks(&ways[i], config->chunks.v[c]) && far_fewer(ways[i].rows, config->chunks.v[c], &cut) &&
                cuts++ == 0)
                first = cut;
    if (cuts == 0) return;
    if (cuts > 1) snprintf(others, sizeof others, " (the first of %d such cuts)", cuts);
    const int whole = first.rows / first.chunks;
    pp_warn("--chunks %d cuts %d rows into only %d microbatches, of %d rows, as torch.chunk does: more memory, more "
            "bubble; %d rows would give %d, of %d, and chunks that divide the rows waste none%s",
            first.chunks, first.rows, first.microbatches, first.each, whole * first.chunks, first.chunks, whole,
            others);
}

pp_status pp_remarks_begin(const struct pp_remarks *r, const struct pp_way *ways, int nways)
{
    const struct pp_config *config = r->predictor->config;
    if (pp_predict_only_times(config)) return PP_OK;
    PP_TRY(tell_model(r->predictor));
    tell_batch(config);
    if (config->gpus > 0) pp_info("GPUs        %d for all workers together (--gpus)", config->gpus);
    tell_cuts(config, ways, nways);
    pp_config_remarks(config);
    return PP_OK;
}

void pp_remarks_source(struct pp_remarks *r, const struct pp_point *point, const struct pp_cost_origin *o)
{
    const char *machine = r->predictor->machine.name;
    char text[PP_POINT_ON_TEXT], remark[256];
    pp_point_on_text(point, r->machine, text);
    for (int i = 0; i < PP_COST_SOURCES; i++)
        if (pp_cost_source_words[i] && o->from[i] > 0 && r->from[i]++ == 0)
            pp_warn("%s: %d of %d task shape%s %s (the first: %s)%s%s", text, o->from[i], o->classes,
                    pp_plural(o->classes), pp_cost_source_words[i], o->first[i],
                    i == PP_COST_MACHINE ? "; they are computed for machine " : "",
                    i == PP_COST_MACHINE ? machine : "");
    if (o->classes > 0 && o->link_computed && r->link_computed++ == 0)
        pp_warn("%s: transfers or reductions were never measured; they are computed for machine %s", text, machine);
    if (o->hop_missing && !r->hop_told)
        pp_warn("%s: %s", text, pp_waits_hop_remark(r->predictor->config, r->predictor->waits, remark, sizeof remark));
    r->hop_told |= o->hop_missing;
    r->taken = fmax(r->taken, o->taken);
}

void pp_remarks_memory(struct pp_remarks *r, const struct pp_point *point, const struct pp_row *row)
{
    const double bytes = (double)row->device_bytes;
    r->fit += !row->too_large;
    r->checkpointed |= point->checkpoint != PP_CHECKPOINT_NEVER && !pp_checkpoint_in_slots(point->checkpoint);
    if (!row->too_large) return;
    const struct pp_large large = {*point, row->replicas, row->context, row->experts, bytes};
    const bool least = r->nlarge == 0 || bytes < r->large[0].bytes;
    if (r->nlarge < PP_LARGE) r->large[r->nlarge++] = least ? r->large[0] : large;
    if (least) r->large[0] = large;
}

void pp_remarks_fits(struct pp_remarks *r)
{
    const struct pp_predictor *p = r->predictor;
    char text[PP_LARGE_TEXT], advice[PP_ADVICE_TEXT], room[PP_MEMORY_TEXT], peak[PP_MEMORY_TEXT];
    if (r->fit > 0 || r->nlarge == 0) return;
    const bool given = p->config->memory > 0;
    advice[0] = '\0';
    if (!pp_predict_only_times(p->config)) pp_advice(p, r->large, r->nlarge, r->checkpointed, advice);
    pp_warn("nothing fits into %s%s%s (%s): the smallest peak is %s, of %s%s", given ? "--memory" : "a device of ",
            given && r->machine ? " on " : "", !given || r->machine ? p->machine.name : "",
            pp_memory_text((double)pp_predict_memory(p), room), pp_memory_text(r->large[0].bytes, peak),
            pp_large_text(&r->large[0], text), advice);
}

/* A database of --db that gives no times may be another one than was meant. If it has some profile, the times that it
 * lacks were told already. */
static void tell_database(const struct pp_remarks *r)
{
    const struct pp_predictor *p = r->predictor;
    if (!p->config->db || !p->db || r->measured > 0 || r->from[PP_COST_MACHINE] > 0) return;
    pp_info("%s %s, so times are computed for machine %s", p->config->db,
            r->db_new ? "was not there, and is a new database" : "has no profile", p->machine.name);
}

void pp_remarks_totals(const struct pp_remarks *r)
{
    const struct pp_config *config = r->predictor->config;
    char remark[256], on[48] = "";
    if (r->machine) snprintf(on, sizeof on, "machine %s: ", r->machine);
    if (r->measured > 0 && pp_taken_remark(r->taken, "ppprof", remark, sizeof remark))
        pp_warn("%sthe profile is disturbed: %s", on, remark);
    if (config->profile && r->measured == 0)
        pp_warn("%sprofile %s has no time of any task of these configurations on device %s", on, config->profile,
                config->device);
    tell_database(r);
    for (int i = 0; i < PP_COST_SOURCES; i++)
        if (pp_cost_source_words[i] && r->from[i] > 1)
            pp_warn("%s%d configurations have task shapes that %s", on, r->from[i], pp_cost_source_words[i]);
    if (r->link_computed > 1) pp_warn("%s%d configurations have links that were never measured", on, r->link_computed);
}

void pp_remarks_schedule(const struct pp_remarks *r)
{
    const struct pp_config *config = r->predictor->config;
    const char *only = config->schedule.v[0];
    struct pp_schedule_found found;
    if (config->workers.n == 0 || config->usual || pp_config_given(config, schedule)) return;
    if (r->predictor->schedules->find(only, &found) != PP_OK) return;
    pp_info("only %s was tried, the default%s; name others to compare, such as --schedule 1f1b,zbv", only,
            found.leaner ? ", which holds all microbatches" : " of this preset");
}

void pp_remarks_machine(const struct pp_remarks *r)
{
    const struct pp_config *config = r->predictor->config;
    const bool plans = config->workers.n > 0 || config->price.n > 0 || config->train_tokens > 0;
    const bool named = pp_config_machine(config) || pp_config_given(config, device) || config->profile;
    if (!plans || named || !r->computed || r->measured > 0) return;
    pp_warn("no --machine was given, so times are of a cpu; for GPUs add --machine h100, or another that --list names");
}

/* The rate of a large product, which no other comes far above. */
static double large_product_flops_per_ns(const struct pp_machine *m, int precision)
{
    enum { EDGE = 8192 };
    struct pp_work work = {.bytes = 3.0 * EDGE * EDGE * sizeof(float),
                           .product = {.m = EDGE, .n = EDGE, .k = EDGE, .times = 1, .moved_bytes = sizeof(float)}};
    work.flops[precision] = 2.0 * EDGE * EDGE * EDGE;
    return work.flops[precision] / pp_machine_work_ns(m, &work);
}

void pp_remarks_precision(const struct pp_remarks *r)
{
    static const double several = 4;
    const struct pp_config *config = r->predictor->config;
    const struct pp_machine *m = &r->predictor->machine;
    if (!r->computed && !pp_config_machine(config)) return;
    if (pp_config_given(config, model.precision) || config->model.precision != PP_FP32) return;
    if (m->cores > 0) return;
    const double plain = large_product_flops_per_ns(m, PP_FP32), in_bf16 = large_product_flops_per_ns(m, PP_BF16);
    if (in_bf16 < several * plain) return;
    pp_warn("products in fp32 go without the tensor cores of %s, at %.0f TFLOP/s instead of %.0f in bf16: most "
            "trainings use --precision bf16; with --precision fp32 this is not said",
            m->name, plain / 1e3, in_bf16 / 1e3);
}
