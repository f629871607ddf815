/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates the builder from a specification and orders, lets emit.c, epilogue.c and finish.c make the plan, and destroys
 * it.
 */
#include "schedules/builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "schedules/building.h"
#include "schedules/file.h"
#include "schedules/orders.h"

static pp_status check_virtual(const struct pp_schedule *schedule, int virtual_stages)
{
    const int only = schedule->virtual_stages == PP_TWO_STAGES ? 2 : 1;
    if (schedule->virtual_stages == PP_ANY_STAGES || virtual_stages == only) return PP_OK;
    return pp_fail(PP_USAGE, "schedule %s runs %s per rank: --virtual must be %d, not %d", schedule->name,
                   only == 1 ? "one stage" : "two stages", only, virtual_stages);
}

static pp_status check_number(const struct pp_schedule *schedule, int number, int batch_w)
{
    const struct pp_schedule *other;
    char names[128];
    struct pp_text text = pp_text_in(names, sizeof names);
    if (!number) return PP_OK;
    if (schedule->number == PP_NUMBER_HELD && batch_w > 1)
        return pp_fail(PP_USAGE, "schedule %s:%d: --batch-w %d keeps activations longer than that says; leave one out",
                       schedule->name, number, batch_w);
    if (schedule->number) return PP_OK;
    for (int i = 0; (other = pp_schedule_at(i)); i++)
        if (other->number) pp_text_add(&text, "%s%s", pp_text_between(&text, ", "), other->name);
    return pp_fail(PP_USAGE, "schedule %s takes no number, such as :%d; %s do", schedule->name, number, names);
}

static pp_status check(const struct pp_plan_spec *spec, struct pp_schedule_shape *shape)
{
    const int ranks = spec->ranks, virtual_stages = spec->virtual_stages, microbatches = spec->microbatches;
    const char *name = spec->schedule;
    int number;
    const struct pp_schedule *schedule = pp_schedule_find(name, &number);
    if (!schedule && !pp_schedule_is_file(name))
        return pp_fail(PP_USAGE, "there is no schedule \"%s\"; the schedules are %s", name, pp_schedules.names());
    if (ranks < 1 || virtual_stages < 1 || microbatches < 1)
        return pp_fail(PP_USAGE, "stages, virtual stages and chunks must be at least 1");
    /* with 32768 ranks the keys of channels (struct pp_pool) fill 31 bits */
    if (ranks > 32768 || ranks > 65536 / virtual_stages || (int64_t)ranks * virtual_stages * microbatches > 100000000)
        return pp_fail(PP_USAGE, "%d rank%s x %d virtual stage%s x %d microbatch%s is more than a plan can hold", ranks,
                       pp_plural(ranks), virtual_stages, pp_plural(virtual_stages), microbatches,
                       pp_plural_es(microbatches));
    *shape = (struct pp_schedule_shape){.ranks = ranks,
                                        .virtual_stages = virtual_stages,
                                        .stages = ranks * virtual_stages,
                                        .microbatches = microbatches,
                                        .training = spec->training,
                                        .meets = spec->optimizer && spec->clip,
                                        .number = number,
                                        .costs = spec->costs};
    if (!schedule) return pp_file_check(name, shape);
    PP_TRY(check_number(schedule, number, spec->batch_w));
    PP_TRY(check_virtual(schedule, virtual_stages));
    return schedule->check ? schedule->check(shape) : PP_OK;
}

pp_status pp_schedule_check(const char *name, int ranks, int virtual_stages, int microbatches)
{
    struct pp_schedule_shape shape;
    const struct pp_plan_spec spec = {.schedule = name,
                                      .ranks = ranks,
                                      .virtual_stages = virtual_stages,
                                      .microbatches = microbatches,
                                      .training = true};
    return check(&spec, &shape);
}

static int one_at_least(int n) { return n > 1 ? n : 1; }

/* The fields about ZeRO. */
static void set_sharing(const struct pp_plan_spec *spec, struct pp_plan *plan)
{
    plan->zero = spec->zero && plan->optimizer && pp_plan_holds_again(plan);
    plan->shards = spec->zero >= PP_ZERO_GRADIENTS && plan->training && pp_plan_holds_again(plan);
    plan->shard_params = spec->zero == PP_ZERO_PARAMETERS && pp_plan_holds_again(plan);
    plan->shard_group = pp_plan_zero(plan) && spec->shard_group ? spec->shard_group : plan->replicas;
    plan->gathers_first = plan->zero && spec->gather_first && !plan->shard_params;
    plan->rounds_weights = spec->rounds_weights && !plan->shard_params;
}

/* Copies the specification into the plan. */
static pp_status start_plan(const struct pp_plan_spec *spec, const int *stage_rank, struct pp_plan *plan)
{
    const int stages = spec->ranks * spec->virtual_stages;
    strncpy(plan->schedule, spec->schedule, sizeof plan->schedule - 1);
    plan->ranks = spec->ranks;
    plan->virtual_stages = spec->virtual_stages;
    plan->stages = stages;
    plan->microbatches = spec->microbatches;
    plan->replicas = spec->replicas;
    plan->expert_parallel = one_at_least(spec->expert_parallel);
    plan->members = plan->expert_parallel * one_at_least(spec->tensor);
    plan->context = one_at_least(spec->context);
    plan->checkpoint = spec->checkpoint;
    plan->recv_buffers = spec->recv_buffers;
    plan->slot_microbatches = spec->batch_w > 1 && spec->training ? spec->batch_w : 1;
    if (plan->slot_microbatches > plan->microbatches) plan->slot_microbatches = plan->microbatches;
    plan->training = spec->training;
    plan->optimizer = spec->optimizer && spec->training;
    plan->clip = spec->clip && plan->optimizer;
    plan->tied = spec->tied && plan->optimizer;
    set_sharing(spec, plan);
    PP_TRY(PP_NEW(&plan->rows, spec->microbatches));
    PP_TRY(PP_NEW(&plan->first_row, spec->microbatches));
    PP_TRY(PP_NEW(&plan->stage_rank, stages));
    PP_TRY(PP_NEW(&plan->act_pool, stages));
    for (int m = 0, row = 0; m < spec->microbatches; m++) {
        plan->rows[m] = spec->rows ? spec->rows[m] : 1;
        plan->first_row[m] = row;
        row += plan->rows[m];
    }
    memcpy(plan->stage_rank, stage_rank, (size_t)stages * sizeof *stage_rank);
    return PP_OK;
}

static int32_t channel_key(const struct pp_plan *plan, const struct pp_builder_channel *c)
{
    return (c->src * plan->ranks + c->dst) * 2 + (c->transfer == PP_XFER_B);
}

/* The channel from src to dst, made if it is new. */
static int32_t channel_between(struct pp_builder *b, int src, int dst, int transfer)
{
    int32_t *first = &b->first_channel[2 * src + (transfer == PP_XFER_B)];
    for (int32_t c = *first; c >= 0; c = b->channels[c].next)
        if (b->channels[c].dst == dst) return c;
    struct pp_builder_channel *c = &b->channels[b->nchannels];
    int buffers = b->plan->recv_buffers;
    *c = (struct pp_builder_channel){
        .lane = b->plan->ranks + b->nchannels, .src = src, .dst = dst, .transfer = transfer, .next = *first};
    c->recv = (struct pp_slots){.pool = {PP_POOL_RECV, dst}, .eager = buffers, .limit = buffers, .oldest_first = true};
    c->send = (struct pp_slots){.pool = {PP_POOL_SEND, src}, .eager = buffers, .oldest_first = true};
    c->recv.pool.key = c->send.pool.key = channel_key(b->plan, c);
    *first = b->nchannels;
    return b->nchannels++;
}

/* One channel per directed pair of ranks and transfer kind that some stage boundary uses; counts the transfers. */
static pp_status make_channels(struct pp_builder *b)
{
    struct pp_plan *plan = b->plan;
    PP_TRY(PP_NEW(&b->channels, 2 * plan->stages));
    PP_TRY(PP_NEW(&b->channel_of, 2 * plan->stages));
    PP_TRY(PP_NEW(&b->first_channel, 2 * plan->ranks));
    for (int s = 0; s < 2 * plan->stages; s++) b->channel_of[s] = -1;
    for (int r = 0; r < 2 * plan->ranks; r++) b->first_channel[r] = -1;
    for (int s = 0; s + 1 < plan->stages; s++) {
        int here = plan->stage_rank[s], next = plan->stage_rank[s + 1];
        if (here == next) continue;
        b->channel_of[2 * s] = channel_between(b, here, next, PP_XFER_F);
        if (plan->training) b->channel_of[2 * (s + 1) + 1] = channel_between(b, next, here, PP_XFER_B);
        b->task_capacity += (int64_t)plan->microbatches * (plan->training ? 2 : 1);
    }
    return PP_OK;
}

static pp_status make_lanes(struct pp_builder *b)
{
    struct pp_plan *plan = b->plan;
    int reduce = (plan->training && pp_plan_holds_again(plan)) || plan->shard_params ? plan->ranks : 0;
    if (plan->training && pp_plan_shard_groups(plan) > 1) reduce += plan->ranks;
    PP_TRY(PP_NEW(&plan->lanes, plan->ranks + b->nchannels + reduce + plan->tied + plan->clip));
    struct pp_lane *lane = plan->lanes;
    for (int r = 0; r < plan->ranks; r++) *lane++ = (struct pp_lane){PP_LANE_COMPUTE, r, r, -1};
    for (int c = 0; c < b->nchannels; c++)
        *lane++ = (struct pp_lane){PP_LANE_CHANNEL, b->channels[c].src, b->channels[c].dst, b->channels[c].transfer};
    for (int i = 0; i < reduce; i++) {
        const int r = i % plan->ranks;
        *lane++ = (struct pp_lane){PP_LANE_REDUCE, r, r, -1};
    }
    if (plan->tied)
        *lane++ = (struct pp_lane){PP_LANE_TIED, plan->stage_rank[0], plan->stage_rank[plan->stages - 1], -1};
    if (plan->clip) *lane++ = (struct pp_lane){PP_LANE_NORM, -1, -1, -1};
    plan->nlanes = (int)(lane - plan->lanes);
    return PP_OK;
}

static pp_status make_ranks(struct pp_builder *b)
{
    struct pp_plan *plan = b->plan;
    int32_t *done = NULL;
    PP_TRY(PP_NEW(&b->ranks, plan->ranks));
    PP_TRY(PP_NEW(&b->done_stages, plan->stages));
    for (int r = 0; r < plan->ranks; r++) {
        struct pp_builder_rank *rank = &b->ranks[r];
        rank->last_compute = rank->last_gather = -1;
        rank->ckpt = (struct pp_slots){.pool = {PP_POOL_CKPT, r}};
        rank->local = (struct pp_slots){.pool = {PP_POOL_LOCAL, r}};
        rank->param = (struct pp_builder_pool){PP_POOL_PARAM, r};
        rank->grad = (struct pp_builder_pool){PP_POOL_GRAD, r};
        for (int i = 0; i < PP_SHARD_SLOTS; i++) rank->held[i].gather = -1;
        rank->summed.reduce = rank->reading = -1;
    }
    for (int s = 0; s < plan->stages; s++) b->ranks[plan->stage_rank[s]].nstages++;
    done = b->done_stages;
    for (int r = 0; r < plan->ranks; r++) {
        b->ranks[r].done_stages = done;
        done += b->ranks[r].nstages;
    }
    return PP_OK;
}

static pp_status read_orders(struct pp_builder *b, const struct pp_order_source *source)
{
    struct pp_plan *plan = b->plan;
    int64_t *first;
    PP_TRY(PP_NEW(&first, plan->ranks + 1));
    pp_status status = pp_orders_read(plan, source, &b->ops, first);
    for (int r = 0; status == PP_OK && r < plan->ranks; r++) {
        b->ranks[r].ops = b->ops + first[r];
        b->ranks[r].nops = first[r + 1] - first[r];
    }
    if (status == PP_OK) b->task_capacity += first[plan->ranks];
    free(first);
    return status;
}

/* Parts only make sense if there are gradients to be summed, or parameters to be gathered; else each stage has one. */
static pp_status set_parts(struct pp_builder *b, const struct pp_plan_spec *spec)
{
    const struct pp_plan *plan = b->plan;
    const bool asked = spec->parts && ((plan->training && pp_plan_holds_again(plan)) || plan->shard_params);
    PP_TRY(PP_NEW(&b->parts, plan->stages));
    PP_TRY(PP_NEW(&b->parts_before, plan->stages));
    for (int s = 0; s < plan->stages; s++) {
        b->parts[s] = asked && spec->parts[s] > 1 ? spec->parts[s] : 1;
        b->parts_before[s] = b->nparts;
        b->nparts += b->parts[s];
    }
    return PP_OK;
}

/* Allocates n numbers, all -1. */
static pp_status make_numbers(int32_t **out, int64_t n)
{
    PP_TRY(PP_NEW(out, n));
    if (n > 0) memset(*out, 0xff, (size_t)n * sizeof **out);
    return PP_OK;
}

static pp_status make_tables(struct pp_builder *b, const struct pp_plan_spec *spec)
{
    struct pp_plan *plan = b->plan;
    int64_t cells = pp_cells(plan);
    PP_TRY(make_numbers(&b->delivered, 2 * cells));
    PP_TRY(make_numbers(&b->act_slot, cells));
    if (pp_recomputed(plan, 0)) PP_TRY(PP_NEW(&b->ckpt_slot, cells));
    PP_TRY(PP_NEW(&b->gradients_left, plan->stages));
    PP_TRY(PP_NEW(&b->started, plan->stages));
    PP_TRY(PP_NEW(&b->final_task, plan->stages));
    PP_TRY(PP_NEW(&b->gather_task, plan->stages));
    PP_TRY(PP_NEW(&b->step_task, plan->stages));
    PP_TRY(set_parts(b, spec));
    for (int s = 0; s < plan->stages; s++) b->gradients_left[s] = plan->microbatches;
    PP_TRY(pp_builder_number_rows(b));
    PP_TRY(make_numbers(&b->class_id, (int64_t)PP_KINDS * (plan->stages + 1) * b->nrows * 2));
    PP_TRY(make_numbers(&b->part_class_id, (int64_t)PP_KINDS * b->nparts * b->nrows * 2));
    b->task_capacity += (plan->zero ? 4 : 3) * (int64_t)plan->stages + 1 + plan->tied;
    const bool groups = pp_plan_shard_groups(plan) > 1;
    for (int s = 0; s < plan->stages; s++)
        b->task_capacity += (plan->gathers_first ? 4 : 2) * (int64_t)(b->parts[s] - 1) + groups * b->parts[s];
    PP_TRY(pp_shards_count(b));
    if (b->task_capacity >= INT32_MAX / 2)
        return pp_fail(PP_USAGE, "the plan would have %lld tasks, more than it can number",
                       (long long)b->task_capacity);
    return PP_NEW_LARGE(&plan->tasks, b->task_capacity);
}

/* Frees the tables that finish.c does not need: in a large plan they take much memory. */
static void free_tables(struct pp_builder *b)
{
    void *const tables[] = {b->ops, b->awake, b->delivered, b->act_slot, b->ckpt_slot};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) free(tables[i]);
    b->ops = NULL;
    b->awake = NULL;
    b->delivered = NULL;
    b->act_slot = b->ckpt_slot = NULL;
}

static void free_builder(struct pp_builder *b)
{
    for (int c = 0; c < b->nchannels; c++) {
        pp_slots_release(&b->channels[c].recv);
        pp_slots_release(&b->channels[c].send);
        free(b->channels[c].pending.values);
    }
    for (int r = 0; b->ranks && r < b->plan->ranks; r++) {
        pp_slots_release(&b->ranks[r].ckpt);
        pp_slots_release(&b->ranks[r].local);
    }
    for (int i = 0; b->act && i < b->plan->stages * PP_ACT_PARTS; i++) pp_slots_release(&b->act[i]);
    pp_act_release(&b->acts);
    free_tables(b);
    void *const rest[] = {b->ranks,       b->act,           b->done_stages,  b->channels,       b->channel_of,
                          b->started,     b->final_task,    b->row_index,    b->first_channel,  b->gradients_left,
                          b->class_id,    b->part_class_id, b->parts_before, b->slot_row_index, b->parts,
                          b->gather_task, b->step_task};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) free(rest[i]);
}

static pp_status build(const struct pp_plan_spec *spec, const struct pp_order_source *source, const int *stage_rank,
                       struct pp_plan **out)
{
    struct pp_builder b = {0};
    pp_status status;
    *out = NULL;
    PP_TRY(PP_NEW(&b.plan, 1));
    PP_TRY_DONE(start_plan(spec, stage_rank, b.plan));
    PP_TRY_DONE(make_ranks(&b));
    PP_TRY_DONE(read_orders(&b, source));
    PP_TRY_DONE(make_channels(&b));
    PP_TRY_DONE(make_lanes(&b));
    PP_TRY_DONE(make_tables(&b, spec));
    PP_TRY_DONE(pp_builder_act_pools(&b, spec->act_bytes));
    PP_TRY_DONE(pp_builder_gathers(&b));
    PP_TRY_DONE(pp_builder_emit(&b));
    PP_TRY_DONE(pp_builder_epilogue(&b));
    free_tables(&b);
    PP_TRY_DONE(pp_builder_finish(&b));
    *out = b.plan;
done:
    free_builder(&b);
    if (status != PP_OK) pp_plan_free(b.plan);
    return status;
}

pp_status pp_plan_build_orders(const struct pp_plan_spec *spec, const struct pp_order *orders, const int *stage_rank,
                               struct pp_plan **out)
{
    const struct pp_order_source source = {.given = orders};
    return build(spec, &source, stage_rank, out);
}

pp_status pp_plan_build(const struct pp_plan_spec *spec, struct pp_plan **out)
{
    struct pp_order_source source = {0};
    struct pp_plan_spec named = *spec;
    int *stage_rank;
    *out = NULL;
    PP_TRY(check(spec, &source.shape));
    int number;
    const struct pp_schedule *schedule = source.schedule = pp_schedule_find(spec->schedule, &number);
    if (!schedule) return pp_file_build(spec, out);
    char name[PP_SCHEDULE_NAME];
    snprintf(name, sizeof name, number ? "%s:%d" : "%s", schedule->name, number);
    named.schedule = name;
    PP_TRY(PP_NEW(&stage_rank, source.shape.stages));
    for (int s = 0; s < source.shape.stages; s++) stage_rank[s] = pp_schedule_rank(schedule, &source.shape, s);
    pp_status status = build(&named, &source, stage_rank, out);
    free(stage_rank);
    return status;
}
