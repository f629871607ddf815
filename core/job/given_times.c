/* SPDX-License-Identifier: Apache-2.0 */
#include "core/job/given_times.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/decimal.h"
#include "core/base/mix.h"
#include "core/options/times_file.h"
#include "core/plan/longest.h"
#include "core/plan/plan_spec.h"

enum { FIELDS = 4, NEEDED = 3 };
static const double longest_ms = 1e9; /* 11 days */

static pp_status bad(const char *text, const char *why)
{
    return pp_fail(
        PP_USAGE,
        "--times: \"%s\" %s; give ms of forward, input gradient, weight gradient and, if you like, a hop: F,I,W[,C]",
        text, why);
}

/* One number at *at; moves *at behind it. */
static pp_status parse_number(const char *text, const char **at, double *out)
{
    char *end;
    if (pp_is_hexadecimal(*at)) return bad(text, "has a number that is not decimal");
    *out = pp_decimal(*at, &end);
    if (end == *at) return bad(text, "has something that is not a number >= 0");
    if (!(*out <= longest_ms)) return bad(text, "has a time above 1e9 ms");
    *at = end;
    return PP_OK;
}

static int64_t in_ns(double ms) { return llround(ms * 1e6); }

pp_status pp_given_times_parse(const char *text, struct pp_given_times *out)
{
    double value[FIELDS] = {0};
    const char *at = text;
    int n = 0;
    if (pp_times_file(text) > 0)
        return bad(text, "names a file, and times of blocks are for ppsim alone, without --device delay");
    for (;;) {
        if (n == FIELDS) return bad(text, "has more than four numbers");
        PP_TRY(parse_number(text, &at, &value[n++]));
        if (*at == '\0') break;
        if (*at++ != ',') return bad(text, "has something else than commas between its numbers");
    }
    if (n < NEEDED) return bad(text, "has fewer than three numbers");
    if (in_ns(value[0]) + in_ns(value[1]) + in_ns(value[2]) == 0)
        return bad(text, "says that nothing takes as long as a nanosecond");
    *out = (struct pp_given_times){
        .forward_ms = value[0], .input_ms = value[1], .weight_ms = value[2], .hop_ms = value[3]};
    return PP_OK;
}

/* "RANK:FACTOR" */
static pp_status parse_straggler(const char *text, struct pp_given_times *out)
{
    char *end;
    long rank = strtol(text, &end, 10);
    const bool good = *text >= '0' && *text <= '9' && *end == ':' && rank <= INT32_MAX;
    if (good) out->slow_factor = pp_decimal(end + 1, &end);
    if (!good || *end != '\0' || !(out->slow_factor > 0 && out->slow_factor <= 1e6))
        return pp_fail(PP_USAGE,
                       "--straggler: \"%s\" is no RANK:FACTOR; give a rank from 0 on and by what its times are "
                       "multiplied, such as 3:1.5",
                       text);
    out->slow_rank = (int)rank;
    return PP_OK;
}

pp_status pp_given_times_of(const struct pp_config *config, struct pp_given_times *out)
{
    *out = (struct pp_given_times){0};
    if (config->blocks)
        *out = (struct pp_given_times){.blocks = config->blocks, .hop_ms = config->blocks->hop_ms};
    else if (config->times)
        PP_TRY(pp_given_times_parse(config->times, out));
    out->jitter = config->jitter / 100;
    out->seed = config->seed;
    return config->straggler ? parse_straggler(config->straggler, out) : PP_OK;
}

pp_status pp_given_times_check(const struct pp_given_times *times, int ranks)
{
    if (times->slow_factor == 0 || times->slow_rank < ranks) return PP_OK;
    return pp_fail(PP_USAGE, "--straggler: there is no rank %d; with --stages %d they are 0 to %d", times->slow_rank,
                   ranks, ranks - 1);
}

pp_status pp_given_times_cut(struct pp_given_times *times, const struct pp_config *config, struct pp_cut_way way,
                             int stages, const int *stage_rank)
{
    const char *split = pp_config_given(config, split) ? config->split : "time";
    if (!times->blocks) return PP_OK;
    PP_TRY(PP_NEW(&times->stage_blocks, stages));
    PP_TRY(PP_NEW(&times->stages, stages));
    PP_TRY(pp_blocks_cut(times->blocks, split, way, stages, stage_rank, times->stage_blocks));
    pp_blocks_add_up(times->blocks, stages, times->stage_blocks, times->stages);
    return PP_OK;
}

void pp_given_times_free(struct pp_given_times *times)
{
    free(times->stages);
    free(times->stage_blocks);
    free(times->measured.ns);
}

struct pp_block pp_given_stage(const struct pp_given_times *times, int stage, int virtual_stages)
{
    if (times->stages) return times->stages[stage];
    return (struct pp_block){.forward_ms = times->forward_ms / virtual_stages,
                             .backward_ms = (times->input_ms + times->weight_ms) / virtual_stages,
                             .input_ms = times->input_ms / virtual_stages,
                             .weight_ms = times->weight_ms / virtual_stages};
}

static double kind_ms(const struct pp_block *stage, int kind, int checkpoint)
{
    switch (kind) {
    case PP_F:
    case PP_R:
        return stage->forward_ms;
    case PP_I:
        return stage->input_ms;
    case PP_W:
        return stage->weight_ms;
    case PP_B:
        return stage->backward_ms + (checkpoint == PP_CHECKPOINT_LAYERS ? stage->forward_ms : 0);
    case PP_STEP:
        return stage->step_ms;
    default:
        return 0; /* hops are latency */
    }
}

/* Given times are those of the first microbatch, which is the largest. cls->rows counts all microbatches of the task.
 */
static double given_ms(const struct pp_given_times *times, const struct pp_plan *plan, const struct pp_class *cls)
{
    if (cls->stage < 0) return 0;
    const struct pp_block stage = pp_given_stage(times, cls->stage, plan->virtual_stages);
    const double ms = kind_ms(&stage, cls->kind, plan->checkpoint);
    return cls->kind == PP_STEP ? ms : ms * cls->rows / plan->rows[0];
}

/* The time of a whole task of which only parts were measured (as with one microbatch, and in evaluation): their sum. */
static double all_parts_ms(const struct pp_measured_times *measured, const struct pp_class *cls)
{
    double ms = 0;
    for (int c = 0; c < measured->plan->nclasses; c++) {
        const struct pp_class *known = &measured->plan->classes[c];
        if (known->kind != cls->kind || known->stage != cls->stage || known->rows < 1 || known->adds != cls->adds)
            continue;
        ms += (double)measured->ns[c] / 1e6 * cls->rows / known->rows;
    }
    return ms;
}

/* The same task's time, else that of most rows, in proportion; 0: there is none. */
static double same_work_ms(const struct pp_measured_times *measured, const struct pp_class *cls)
{
    int most = 0;
    double ms = 0;
    for (int c = 0; c < measured->plan->nclasses; c++) {
        const struct pp_class *known = &measured->plan->classes[c];
        if (known->kind != cls->kind || known->stage != cls->stage || known->part != cls->part) continue;
        if (known->parts != cls->parts || known->adds != cls->adds) continue;
        if (known->rows == cls->rows) return (double)measured->ns[c] / 1e6;
        if (known->rows <= most) continue;
        most = known->rows;
        ms = (double)measured->ns[c] / 1e6 * cls->rows / most;
    }
    return most > 0 || cls->parts > 1 ? ms : all_parts_ms(measured, cls);
}

/* A batch cut short may have a backward that only writes, or only adds, where the measured plan has the other. */
static double measured_ms(const struct pp_measured_times *measured, const struct pp_class *cls)
{
    struct pp_class other = *cls;
    const double ms = same_work_ms(measured, cls);
    other.adds = !cls->adds;
    return ms > 0 ? ms : same_work_ms(measured, &other);
}

static pp_status too_long(const struct pp_class *cls, double ns)
{
    return pp_fail(PP_INPUT,
                   "%s of stage %d would take %.3g s, and no task may take more than %.3g s: give shorter times",
                   pp_kinds[cls->kind].name, cls->stage, ns / 1e9, PP_LONGEST_STEP_NS / 1e9);
}

pp_status pp_given_class_ns(const struct pp_given_times *times, const struct pp_plan *plan, const struct pp_class *cls,
                            int64_t *out)
{
    double ms = times->measured.ns ? measured_ms(&times->measured, cls) : given_ms(times, plan, cls);
    if (times->slow_factor > 0 && cls->stage >= 0 && plan->stage_rank[cls->stage] == times->slow_rank)
        ms *= times->slow_factor;
    if (!(ms * 1e6 <= PP_LONGEST_STEP_NS)) return too_long(cls, ms * 1e6);
    *out = llround(ms * 1e6);
    return PP_OK;
}

int64_t pp_given_hop_ns(const struct pp_given_times *times) { return llround(times->hop_ms * 1e6); }

int64_t pp_jitter_ns(int64_t ns, double jitter, uint64_t seed, int64_t step, int32_t task, int worker)
{
    uint64_t key = pp_mix(seed);
    if (jitter == 0) return ns;
    key = pp_mix(key ^ (uint64_t)step);
    key = pp_mix(key ^ ((uint64_t)(uint32_t)worker << 32 | (uint32_t)task));
    double u = (double)(key >> 11) * 0x1p-52 - 1; /* uniform in [-1, 1) */
    return llround((double)ns * (1 + jitter * u));
}
