/* SPDX-License-Identifier: Apache-2.0
 *
 * A device that computes in the worker's own thread, from memory of the host.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/calls/bf16.h"
#include "core/plan/workers.h"
#include "exec/worker_inside.h"

/* --- opening and closing --- */

/* Sums of squares that a worker tells of a tensor: of its share, or of all parts, of which some may be another's. */
static int sums_of_tensor(const struct pp_job *job)
{
    return job->train->zero ? 1 : pp_shape_rank_sums(&job->model->shape);
}

static int most_tensors(const struct pp_job *job)
{
    int most = 1;
    for (int rank = 0; rank < job->train->ranks; rank++) {
        int tensors = 0;
        for (int s = 0; s < job->train->stages; s++)
            if (job->train->stage_rank[s] == rank) tensors += job->model->stages[s].tensors;
        if (tensors > most) most = tensors;
    }
    return most;
}

/* --- sums over the workers of the rank --- */

static bool has_joined(struct pp_worker *w, const void *arg)
{
    struct pp_reduce *joined = w->direct.joined[*(const enum pp_join_group *)arg];
    const pp_status status = pp_reduce_poll(w->world, joined);
    if (status != PP_OK) w->status = status;
    return joined->done;
}

static bool has_exchanged(struct pp_worker *w, const void *arg)
{
    struct pp_exchange *exchange = w->direct.exchange[*(const enum pp_join_group *)arg];
    const pp_status status = pp_exchange_poll(w->world, exchange);
    if (status != PP_OK) w->status = status;
    return exchange->done;
}

static pp_status start_join(struct pp_worker *w, const struct pp_join_call *call)
{
    const struct pp_shares *parts = pp_worker_join_parts(w, call);
    if (pp_join_exchanges(call->op)) {
        const struct pp_pieces pieces = pp_pieces_of(call, pp_join_size(w->job->train, call->group));
        return pp_exchange_start(w->world, w->direct.exchange[call->group], &pieces);
    }
    return parts ? pp_reduce_start_shares(w->world, w->direct.joined[call->group], call->memory, parts)
                 : pp_reduce_start(w->world, w->direct.joined[call->group], call->memory, call->elements);
}

/* pp_join.run: what else is under way goes on meanwhile. The device computes in float32. */
static void join(void *arg, const struct pp_join_call *call)
{
    struct pp_worker *w = arg;
    pp_worker_condition *const has_ended = pp_join_exchanges(call->op) ? has_exchanged : has_joined;
    if (call->op == PP_JOIN_AWAIT) return; /* it has ended */
    if (w->status == PP_OK) w->status = start_join(w, call);
    if (w->status == PP_OK) w->status = pp_worker_wait(w, has_ended, &call->group);
    w->join.failed = w->status != PP_OK;
}

static pp_status open_joins(struct pp_worker *w)
{
    const struct pp_plan *plan = w->job->train;
    for (int group = 0; group < PP_JOIN_GROUPS; group++) {
        const struct pp_group members = pp_join_members(plan, w->me, group);
        if (members.n == 1) continue;
        const struct pp_most_joined most = pp_job_most_joined(w->job, group);
        w->join = (struct pp_join){.run = join, .arg = w};
        if (most.bytes > 0)
            PP_TRY(pp_reduce_create(members, w->me, w->backend, w->device, most.bytes, &w->direct.joined[group]));
        if (most.pieces > 0) PP_TRY(pp_exchange_create(members, w->me, most.pieces, &w->direct.exchange[group]));
    }
    return PP_OK;
}

static pp_status open_tied(struct pp_worker *w)
{
    const struct pp_plan *plan = w->job->train;
    const struct pp_group group = pp_tied_group(plan, w->replica, w->member);
    if (!pp_ties_ranks(plan, w->rank)) return PP_OK;
    return pp_reduce_create(group, w->me, w->backend, w->device, pp_tied_gradient(w->job->model, 0, 0).bytes,
                            &w->direct.tied);
}

/* most_bytes: of gradients, which may be rounded. */
static pp_status open_reduce(struct pp_worker *w, struct pp_group group, int64_t most_bytes, struct pp_reduce **out)
{
    if (group.n == 1) return PP_OK;
    if (w->job->model->shape.bf16_sums) return pp_reduce_create_host(group, w->me, PP_SUM_BF16, most_bytes / 2, out);
    return pp_reduce_create(group, w->me, w->backend, w->device, most_bytes, out);
}

static pp_status open_reduces(struct pp_worker *w)
{
    const struct pp_plan *plan = w->job->train;
    for (int set = 0; set < PP_PARAM_SETS; set++) {
        const int64_t most_bytes = pp_most_gradient_bytes(w->job, w->rank, set);
        if (most_bytes == 0) continue;
        PP_TRY(open_reduce(w, pp_replica_group(plan, w->me, set), most_bytes, &w->direct.reduce[set]));
    }
    return open_reduce(w, pp_share_group(plan, w->me), pp_most_share_bytes(w->job, w->rank), &w->direct.share);
}

static pp_status open_direct(struct pp_worker *w, int microbatches, bool traces)
{
    (void)traces;
    const struct pp_plan *plan = w->job->train;
    const int most = most_tensors(w->job);
    const int workers = pp_norm_workers(w->job->train);
    w->norm = (struct pp_gather){.group = pp_norm_group(plan, w->me),
                                 .me = w->me,
                                 .kind = PP_MESSAGE_NORM,
                                 .bytes = (int64_t)most * sums_of_tensor(w->job) * (int64_t)sizeof(double)};
    PP_TRY(PP_NEW(&w->direct.posted_ns, w->most_reductions));
    PP_TRY(PP_NEW(&w->inputs, 2 * w->job->layout->data_elements));
    PP_TRY(PP_NEW(&w->losses, microbatches));
    PP_TRY(PP_NEW(&w->sums, w->nsums));
    PP_TRY(pp_alloc_bytes(&w->norm.blocks, (size_t)workers, (size_t)w->norm.bytes));
    PP_TRY(open_joins(w));
    PP_TRY(open_tied(w));
    return open_reduces(w);
}

static void close_direct(struct pp_worker *w)
{
    for (int set = 0; set < PP_PARAM_SETS; set++) pp_reduce_free(w->direct.reduce[set]);
    pp_reduce_free(w->direct.share);
    for (int group = 0; group < PP_JOIN_GROUPS; group++) {
        pp_reduce_free(w->direct.joined[group]);
        pp_exchange_free(w->direct.exchange[group]);
    }
    pp_reduce_free(w->direct.tied);
    free(w->direct.posted_ns);
    free(w->norm.blocks);
    free(w->sums);
    free(w->losses);
    free(w->inputs);
}

/* --- a step --- */

static pp_status begin(struct pp_worker *w)
{
    memset(w->losses, 0, (size_t)w->step.phase->plan->microbatches * sizeof *w->losses);
    memset(w->sums, 0, (size_t)w->nsums * sizeof *w->sums); /* others' are added to them */
    return PP_OK;
}

static pp_status load(struct pp_worker *w, void *to, const void *from, int64_t bytes)
{
    return w->backend->upload(w->device, to, from, bytes);
}

/* Does a task keep the thread computing from its beginning to its end? */
static bool computes_through(const struct pp_worker *w)
{
    return !w->backend->waits && pp_plan_neighbours(w->job->train) == 1;
}

static pp_status run(struct pp_worker *w, const struct pp_stop *stop, struct pp_frame *frame, int64_t posted_ns)
{
    const struct pp_phase *phase = w->step.phase;
    const struct pp_progress progress = {pp_worker_poll, w, pp_worker_sleep};
    struct pp_event event = {.step = w->step.number, .task = stop->task, .side = PP_SIDE_RUN, .posted_ns = posted_ns};
    const bool told = w->step.traced && computes_through(w);
    const int64_t cpu_ns = told ? pp_cpu_ns() : 0;
    if (w->step.traced) event.start_ns = pp_now_ns();
    frame->wait.begun_ns = &event.start_ns;
    PP_TRY(w->backend->run(w->device, &phase->programs[phase->plan->tasks[stop->task].cls], frame, &progress, NULL));
    if (!w->step.traced) return PP_OK;
    event.end_ns = pp_now_ns();
    if (told) pp_core_time_add(&w->traced[w->ntraced - 1], event.end_ns - event.start_ns, pp_cpu_ns() - cpu_ns);
    return pp_worker_record(w, &event);
}

static pp_status end(struct pp_worker *w, const double **losses)
{
    *losses = w->losses;
    return PP_OK;
}

/* --- transfers --- */

/* The worker of another rank that holds the same part as this one, and exchanges activations with it. */
static int worker_of(const struct pp_worker *w, int rank)
{
    return pp_worker_at(w->job->train, w->replica, rank, w->member);
}

static pp_status send(struct pp_worker *w, int lane, struct pp_transfer *transfer, void *memory, int64_t bytes)
{
    const struct pp_channel_end *end = &w->track->walk->send[lane];
    return pp_send(w->world, w->me, worker_of(w, end->peer), pp_message_of(end->transfer), memory, bytes,
                   &transfer->request);
}

static pp_status recv(struct pp_worker *w, int lane, struct pp_transfer *transfer, void *memory, int64_t bytes)
{
    const struct pp_channel_end *end = &w->track->walk->recv[lane];
    return pp_recv(w->world, worker_of(w, end->peer), w->me, pp_message_of(end->transfer), memory, bytes,
                   &transfer->request);
}

/* Tests in order, the oldest first. */
static pp_status poll(struct pp_worker *w, struct pp_flow *flow, const struct pp_channel_end *end, int side)
{
    while (flow->done < flow->posted) {
        struct pp_transfer *transfer = &flow->transfers[flow->done % end->n];
        PP_TRY(pp_test(w->world, &transfer->request));
        if (!transfer->request.done) break;
        flow->retired = ++flow->done;
        if (!transfer->traced) continue;
        struct pp_event event = {.step = transfer->step,
                                 .task = transfer->task,
                                 .side = side,
                                 .posted_ns = transfer->posted_ns,
                                 .start_ns = transfer->posted_ns,
                                 .end_ns = pp_now_ns()};
        PP_TRY(pp_worker_record(w, &event));
    }
    return PP_OK;
}

/* --- sums --- */

static pp_status record_collective(struct pp_worker *w, int32_t task, int64_t posted_ns, int64_t start_ns)
{
    if (!w->step.traced) return PP_OK;
    struct pp_event event = {.step = w->step.number,
                             .task = task,
                             .side = PP_SIDE_RUN,
                             .posted_ns = posted_ns,
                             .start_ns = start_ns,
                             .end_ns = pp_now_ns()};
    return pp_worker_record(w, &event);
}

static pp_status narrow(struct pp_worker *w, bool share, uint16_t *to, const float *from, int64_t n)
{
    (void)w, (void)share;
    for (int64_t i = 0; i < n; i++) to[i] = pp_bf16(from[i]);
    return PP_OK;
}

static pp_status widen(struct pp_worker *w, bool share, float *to, const uint16_t *from, int64_t n)
{
    (void)w, (void)share;
    for (int64_t i = 0; i < n; i++) to[i] = pp_bf16_float(from[i]);
    return PP_OK;
}

static pp_status ask_reduction(struct pp_worker *w)
{
    w->direct.posted_ns[w->reductions_asked - 1] = pp_now_ns();
    return PP_OK;
}

/* Starts the collective of a set in the reduction that is under way. */
static pp_status start_set(struct pp_worker *w, enum pp_param_set set)
{
    const struct pp_combining c = pp_worker_combining(w, w->reductions_done, set);
    const int64_t elements = c.bytes / pp_sum_bytes(c.floats ? PP_SUM_BF16 : PP_SUM_FLOAT);
    w->reduction_set = set;
    if (c.floats) PP_TRY(pp_worker_narrow(w, &c));
    w->direct.busy = c.tied ? w->direct.tied : c.share ? w->direct.share : w->direct.reduce[set];
    if (c.shares) return pp_reduce_start_shares(w->world, w->direct.busy, c.memory, c.shares);
    if (w->direct.busy) return pp_reduce_start(w->world, w->direct.busy, c.memory, elements);
    w->backend->add(w->device, (float *)(void *)c.memory, (float *)(void *)c.memory, (float *)(void *)c.copy, elements);
    memcpy(c.copy, c.memory, (size_t)c.bytes);
    return PP_OK;
}

static pp_status start_reduction(struct pp_worker *w)
{
    w->reductions_begun++;
    w->direct.start_ns = pp_now_ns();
    return start_set(w, PP_DENSE);
}

/* Ends the collective that is under way, and starts that of the experts, if the reduction has one behind it. *ended:
 * that was the last one of the reduction. */
static pp_status end_reduction(struct pp_worker *w, bool *ended)
{
    const struct pp_combining c = pp_worker_combining(w, w->reductions_done, w->reduction_set);
    if (c.floats) PP_TRY(pp_worker_widen(w, &c));
    *ended = c.set == PP_EXPERTS || !pp_worker_combines(w, w->reductions_done, PP_EXPERTS);
    return *ended ? PP_OK : start_set(w, PP_EXPERTS);
}

/* One at a time, in the order of the plan. */
static pp_status advance_reductions(struct pp_worker *w)
{
    while (w->reductions_done < w->reductions_asked) {
        int32_t task = w->reductions[w->reductions_done];
        bool ended;
        if (w->reductions_begun == w->reductions_done) PP_TRY(start_reduction(w));
        if (w->direct.busy) PP_TRY(pp_reduce_poll(w->world, w->direct.busy));
        if (w->direct.busy && !w->direct.busy->done) break;
        PP_TRY(end_reduction(w, &ended));
        if (!ended) continue;
        PP_TRY(record_collective(w, task, w->direct.posted_ns[w->reductions_done], w->direct.start_ns));
        w->reductions_done++;
    }
    return PP_OK;
}

/* A worker's block of the all-gather: the sums of its stages' tensors, stage after stage, of all their parts or of its
 * share. Copies them there, or adds what is there to sums[]. */
static void move_sums(struct pp_worker *w, int worker, double *block, bool into_block)
{
    const struct pp_plan *plan = w->job->train;
    const struct pp_shape *shape = &w->job->model->shape;
    const int each = sums_of_tensor(w->job);
    const int64_t own = (int64_t)pp_worker_tensor_rank(plan, worker) * pp_shape_rank_sums(shape) +
                        (plan->zero ? pp_worker_share(plan, worker, PP_DENSE) : 0);
    for (int s = 0; s < plan->stages; s++) {
        const struct pp_stage *stage = &w->job->model->stages[s];
        if (plan->stage_rank[s] != pp_worker_rank(plan, worker)) continue;
        for (int i = 0; i < stage->tensors; i++, block += each) {
            double *sums = w->sums + (int64_t)(stage->first_tensor + i) * pp_shape_sums(shape) + own;
            for (int k = 0; k < each; k++) {
                if (into_block)
                    block[k] = sums[k];
                else
                    sums[k] += block[k];
            }
        }
    }
}

static pp_status ask_norm(struct pp_worker *w, int32_t task)
{
    w->direct.norm_task = task;
    w->direct.norm_posted_ns = pp_now_ns();
    move_sums(w, w->me, (double *)(void *)w->norm.blocks, true);
    PP_TRY(pp_gather_start(w->world, &w->norm));
    return pp_worker_advance(w);
}

/* Added in model order, so that the factor has the same bits however the model is cut. */
static void set_clip_factor(struct pp_worker *w)
{
    double sum = 0;
    for (int i = 0; i < w->norm.group.n; i++) {
        const int worker = pp_group_worker(&w->norm.group, i);
        if (worker != w->me) move_sums(w, worker, pp_gather_block(&w->norm, i), false);
    }
    for (int i = 0; i < w->nsums; i++) sum += w->sums[i];
    double factor = w->job->config->clip / (sqrt(sum) + 1e-6);
    w->frame.clip_factor = factor > 1 ? 1.0f : (float)factor; /* not a number stays that */
}

static pp_status advance_norm(struct pp_worker *w)
{
    if (!w->norm.open) return PP_OK;
    PP_TRY(pp_gather_poll(w->world, &w->norm));
    if (!w->norm.done) return PP_OK;
    w->norm.open = false;
    w->norm_ready = true;
    set_clip_factor(w);
    return record_collective(w, w->direct.norm_task, w->direct.norm_posted_ns, w->direct.norm_posted_ns);
}

static pp_status advance_sums(struct pp_worker *w)
{
    PP_TRY(advance_reductions(w));
    return advance_norm(w);
}

/* Nothing of it is used by others, and nothing goes on when the thread does not. */
const struct pp_worker_ops pp_worker_direct = {
    .open = open_direct,
    .close = close_direct,
    .begin = begin,
    .load = load,
    .run = run,
    .end = end,
    .send = send,
    .recv = recv,
    .poll = poll,
    .ask_reduction = ask_reduction,
    .narrow = narrow,
    .widen = widen,
    .ask_norm = ask_norm,
    .advance_sums = advance_sums,
};
