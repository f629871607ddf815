/* SPDX-License-Identifier: Apache-2.0
 *
 * Costs computed from the data sheet of a machine, by its roofline.
 */
#include <math.h>
#include <stdlib.h>

#include "core/database/split_time.h"
#include "core/model/queue.h"
#include "core/options/devices.h"
#include "core/plan/longest.h"
#include "sim/costs.h"
#include "sim/machine_calls.h"
#include "sim/placement.h"

int pp_norm_hops(const struct pp_plan *plan)
{
    int hops = 0;
    while (hops < 31 && 1 << hops < pp_norm_workers(plan)) hops++;
    return hops;
}

/* Bytes of a set of parameters that GATHER_PARAM gathers, all shares together. */
static int64_t gathered_bytes(const struct pp_model *model, const struct pp_class *cls, enum pp_param_set set)
{
    const struct pp_stage *stage = &model->stages[cls->stage];
    const struct pp_tensor_range range = pp_part_tensors(stage, cls);
    int64_t bytes = 0;
    for (int i = range.first; i < range.first + range.n; i++) {
        const struct pp_tensor *t = &model->tensors[stage->first_tensor + i];
        const int64_t elements = t->set == (int)set ? t->part_elements * pp_shape_parts(&model->shape, set) : 0;
        if (t->value_offset >= 0) bytes += elements * (int64_t)sizeof(float);
        if (t->offset16 >= 0) bytes += elements * pp_element_bytes(PP_BF16);
    }
    return bytes;
}

int64_t pp_cost_combined_bytes(const struct pp_job *job, const struct pp_class *cls, enum pp_param_set set)
{
    const struct pp_model *model = job->model;
    if (!pp_combines(cls->kind) || !pp_combines_set(job->train, cls->kind, set)) return 0;
    if (cls->kind == PP_REDUCE_TIED) return pp_tied_gradient(model, 0, 0).bytes;
    if (pp_sent_bytes(model, cls, set)) return pp_sent_bytes(model, cls, set);
    return cls->kind == PP_GATHER_PARAM ? gathered_bytes(model, cls, set) : pp_summed_bytes(model, cls, set);
}

/* Bytes that a transfer or collective moves; 0 for computations. */
static int64_t moved_bytes(const struct pp_job *job, const struct pp_class *cls)
{
    if (pp_is_transfer(cls->kind)) return pp_hidden_bytes(&job->model->shape, cls->rows, job->config->tokens);
    return pp_cost_combined_bytes(job, cls, PP_DENSE) + pp_cost_combined_bytes(job, cls, PP_EXPERTS);
}

int pp_cost_sharers(const struct pp_job *job) { return pp_gpu_sharers(pp_plan_workers(job->train), job->config->gpus); }

pp_status pp_cost_check_sharers(const struct pp_job *job)
{
    int workers = pp_plan_workers(job->train), gpus = job->config->gpus;
    if (job->config->host_order && pp_cost_sharers(job) > 1)
        return pp_fail(PP_USAGE,
                       "--host-order replicas: workers that share one of %d GPUs are ranks of a replica; give --gpus "
                       "%d, or leave one of the options out",
                       gpus, workers);
    if (gpus == 0 || workers <= gpus || workers % gpus == 0) return PP_OK;
    return pp_fail(
        PP_USAGE,
        "%d workers cannot share %d GPUs evenly: use --gpus %d, or other --stages, --tensor or --context-parallel",
        workers, gpus, pp_gpus_even(workers, gpus));
}

static pp_status check_rate(const struct pp_machine *m, const struct pp_config *config)
{
    const struct pp_shape *model = &config->model;
    if (m->flops_per_ns[model->precision] > 0) return PP_OK;
    if (!pp_config_machine(config))
        return pp_fail(PP_USAGE,
                       "no --machine was given, and machine %s has no rate for --precision %s; for GPUs add --machine "
                       "h100, or another that --list names",
                       m->name, pp_precision_names[model->precision]);
    return pp_fail(PP_USAGE,
                   "machine %s has no rate for --precision %s; name another --machine, or leave --precision out",
                   m->name, pp_precision_names[model->precision]);
}

/* Of a model in FP8 the products of layers' linears are FP8, and the others bf16. */
pp_status pp_machine_check_rates(const struct pp_machine *m, const struct pp_config *config)
{
    PP_TRY(check_rate(m, config));
    if (config->model.precision != PP_FP8 || m->flops_per_ns[PP_BF16] > 0) return PP_OK;
    return pp_fail(PP_USAGE,
                   "machine %s has no rate for bf16, in which --precision fp8 has attention and some products; name "
                   "another --machine, or leave --precision out",
                   m->name);
}

/* Calls that meet other workers; without neighbours there are none. */
static int count_joins(const struct pp_job *job, int cls, bool awaits)
{
    const struct pp_program *program = &job->phase[PP_TRAIN].programs[cls];
    int n = 0;
    for (int i = 0; i < pp_program_length(program) && pp_plan_neighbours(job->train) > 1; i++) {
        const struct pp_join_work join = job->model_ops->call_join(&program->calls[pp_program_at(program, i)]);
        n += awaits ? join.op == PP_JOIN_AWAIT : join.bytes > 0;
    }
    return n;
}

int pp_cost_count_sums(const struct pp_job *job, int cls) { return count_joins(job, cls, false); }

/* Number of kernels that a task launches: one for each call. On a GPU, STEP has one for up to PP_CUDA_GROUP tensors,
 * and NORM two; collectives at their beginning count as one each. */
static int launches(const struct pp_job *job, const struct pp_machine *m, int cls)
{
    const int calls = pp_program_length(&job->phase[PP_TRAIN].programs[cls]), kind = job->train->classes[cls].kind;
    if (m->cores > 0 || (kind != PP_NORM && kind != PP_STEP)) return calls - count_joins(job, cls, true);
    const int sums = pp_cost_count_sums(job, cls), groups = (calls - sums + PP_CUDA_GROUP - 1) / PP_CUDA_GROUP;
    return sums + (kind == PP_NORM ? 2 * groups : groups);
}

/* Calls run one after another, so each takes the longer of the times for its arithmetic and its bytes. */
static pp_status set_roofline(const struct pp_job *job, struct pp_machine_calls *calls, int cls, int launched,
                              struct pp_class_cost *out)
{
    const struct pp_program *p = &job->phase[PP_TRAIN].programs[cls];
    double ns = launched * calls->machine->call_overhead_ns, loaded_ns = ns;
    struct pp_roofline *times;
    PP_TRY(PP_NEW(&times, p->ncalls));
    for (int i = 0; i < p->ncalls; i++) times[i] = pp_machine_roofline(calls, &p->calls[i]);
    for (int i = 0; i < pp_program_length(p); i++) {
        const struct pp_roofline *call = &times[pp_program_at(p, i)];
        ns += call->ns;
        loaded_ns += call->loaded_ns;
    }
    free(times);
    out->ns = llround(fmin(ns, PP_BEYOND_NS));
    out->loaded_ns = llround(fmin(loaded_ns, PP_BEYOND_NS));
    return PP_OK;
}

/* REDUCE_TIED on one rank with both copies: a sum and a copy, which pass over memory five times. */
static int64_t tied_here_ns(int64_t bytes, const struct pp_machine *m)
{
    return llround(5 * (double)bytes / m->bytes_per_ns);
}

/* Number of tensors of a set in the part of a class; for REDUCE_SHARE, which sums all sets together, of all sets. */
static int tensors_of(const struct pp_job *job, const struct pp_class *cls, enum pp_param_set set)
{
    const struct pp_stage *s = &job->model->stages[cls->stage];
    const struct pp_tensor_range range = pp_part_tensors(s, cls);
    const struct pp_tensor *first = &job->model->tensors[s->first_tensor + range.first];
    int n = 0;
    for (int i = 0; i < range.n; i++) n += first[i].set == (int)set || cls->kind == PP_REDUCE_SHARE;
    return n;
}

int64_t pp_cost_rounding_ns(const struct pp_job *job, const struct pp_class *cls, const struct pp_machine *m)
{
    enum { BYTES = 6 }; /* a float32 number read and a bfloat16 number written, or the other way round */
    const struct pp_plan *plan = job->train;
    const bool scatters = plan->zero && cls->kind == PP_REDUCE_GRAD;
    const bool tensors = scatters || (plan->zero && !plan->shards);
    double passes = 0, bytes = 0;
    for (int set = 0; set < PP_PARAM_SETS; set++) {
        const double sent = pp_combines_set(plan, cls->kind, set) ? (double)pp_sent_bytes(job->model, cls, set) / 2 : 0;
        if (sent == 0) continue;
        bytes += BYTES * (sent + (scatters ? sent / pp_plan_sharers(plan, set) : sent));
        passes += 2 * (tensors ? tensors_of(job, cls, set) : 1);
    }
    return llround(passes * m->call_overhead_ns + bytes / m->bytes_per_ns);
}

/* The class before `cls` that takes the same time, because its calls do the same and its workers meet in the same way;
 * cls itself if there is none. */
static int same_time(const struct pp_job *job, const struct pp_placement *placement, int cls)
{
    const struct pp_plan *plan = job->train;
    const int same = job->phase[PP_TRAIN].same_as[cls];
    const int rank = plan->stage_rank[plan->classes[same].stage], own = plan->stage_rank[plan->classes[cls].stage];
    return pp_placement_joins_alike(placement, rank, own) ? same : cls;
}

/* What the class costs by the job's lender, if calls of a class there do the same and its workers meet in the same way;
 * NULL: none has. */
static const struct pp_class_cost *lent_cost(const struct pp_job *job, const struct pp_placement *placement, int cls)
{
    const int lent = job->phase[PP_TRAIN].lent[cls];
    if (lent < 0 || !job->lender->cost) return NULL;
    const struct pp_plan *plan = job->train, *lending = job->lender->job->train;
    const int theirs = lending->stage_rank[lending->classes[lent].stage];
    const int own = plan->stage_rank[plan->classes[cls].stage];
    return pp_placement_joins_alike(placement, theirs, own) ? &job->lender->cost->classes[lent] : NULL;
}

static pp_status set_class(const struct pp_job *job, struct pp_machine_calls *calls, int cls,
                           const struct pp_placement *placement, struct pp_class_cost *out)
{
    const struct pp_machine *m = calls->machine;
    const struct pp_call_times beside = {pp_machine_call_ns, calls};
    const struct pp_class *c = &job->train->classes[cls];
    const int launched = pp_kinds[c->kind].computes ? launches(job, m, cls) : 1;
    out->bytes = moved_bytes(job, c);
    out->host_ns = llround(launched * m->issue_ns);
    if (pp_kinds[c->kind].computes) {
        PP_TRY(set_roofline(job, calls, cls, launched, out));
        return pp_placement_set_sums(placement, job, cls, pp_machine_sum_link(m), m->cores > 0 ? NULL : &beside, out);
    }
    if (pp_combines(c->kind))
        out->ns = pp_placement_combine_ns(placement, job, c, pp_machine_sum_link(m)) + pp_cost_rounding_ns(job, c, m);
    if (c->kind == PP_REDUCE_TIED && !pp_ties_ranks(job->train, job->train->stage_rank[0]))
        out->ns = tied_here_ns(out->bytes, m);
    if (c->kind == PP_NORM_ALL)
        out->ns = pp_norm_hops(job->train) *
                  (pp_placement_hop_ns(placement, llround(m->link_latency_ns)) + 2 * llround(m->link_overhead_ns));
    out->loaded_ns = out->ns;
    return PP_OK;
}

pp_status pp_cost_from_machine(const struct pp_job *job, const struct pp_machine *m, struct pp_cost **out)
{
    int sharers = m->cores == 0 ? pp_cost_sharers(job) : 1;
    struct pp_machine_calls calls;
    *out = NULL;
    if (m->cores == 0) PP_TRY(pp_cost_check_sharers(job));
    PP_TRY(pp_machine_check_rates(m, job->config));
    PP_TRY(pp_cost_create(job->train, PP_COST_MACHINE, out));
    struct pp_cost *cost = *out;
    struct pp_placement placement = pp_placement_of(job, m);
    pp_status status = pp_placement_remember(&placement);
    pp_machine_calls_begin(&calls, m, job->model_ops, sharers);
    for (int c = 0; c < cost->nclasses && status == PP_OK; c++) {
        const int same = pp_kinds[job->train->classes[c].kind].computes ? same_time(job, &placement, c) : c;
        const struct pp_class_cost *known = same < c ? &cost->classes[same] : lent_cost(job, &placement, c);
        if (known)
            cost->classes[c] = *known;
        else
            status = set_class(job, &calls, c, &placement, &cost->classes[c]);
    }
    pp_placement_forget(&placement);
    if (status != PP_OK) {
        pp_cost_free(cost);
        *out = NULL;
        return status;
    }
    cost->cores = m->cores;
    cost->sharers = sharers;
    cost->taken = m->cores == 0 ? m->reduce_takes : 0;
    cost->host_issues = m->issue_ns > 0;
    cost->issue_latency_ns = llround(m->issue_latency_ns);
    cost->link = (struct pp_link_cost){.latency_ns = llround(m->link_latency_ns),
                                       .send_overhead_ns = llround(m->link_overhead_ns),
                                       .recv_overhead_ns = llround(m->link_overhead_ns),
                                       .ns_per_byte = 1 / m->link_bytes_per_ns,
                                       .receiver_copies = m->receiver_copies,
                                       .posts_in_order = m->posts_in_order};
    pp_placement_set_transfers(&placement, cost);
    return PP_OK;
}

/* For times of calls with their collectives. */
struct sheet {
    struct pp_machine_calls calls;
    struct pp_placement placement;
    struct pp_ring rings[PP_JOIN_GROUPS];
};

static pp_status call_ns(void *from, const struct pp_call *call, double *out)
{
    struct sheet *sheet = from;
    const struct pp_join_work join = sheet->calls.ops->call_join(call);
    PP_TRY(pp_machine_call_ns(&sheet->calls, call, out));
    *out += (double)pp_placement_join_ns(&sheet->placement, &sheet->rings[join.group], &join,
                                         pp_machine_sum_link(sheet->calls.machine));
    return PP_OK;
}

pp_status pp_machine_split_time(const struct pp_machine *m, const struct pp_config *config,
                                const struct pp_point *point, const struct pp_model_ops *ops, double **layer_ns)
{
    struct sheet sheet = {.placement = pp_placement_on(m)};
    struct pp_config one;
    pp_machine_calls_begin(&sheet.calls, m, ops, 1);
    pp_split_time_workers(config, ops, &one);
    const int tensor = one.tensor.v[0], experts = pp_config_expert_parallel(&one);
    const struct pp_group groups[PP_JOIN_GROUPS] = {
        [PP_JOIN_TENSOR_RANKS] = {.stride = 1, .n = tensor},
        [PP_JOIN_EXPERT_RANKS] = {.stride = tensor, .n = experts},
        [PP_JOIN_CONTEXT_RANKS] = {.stride = tensor * experts, .n = pp_config_context(&one)}};
    for (int i = 0; i < PP_JOIN_GROUPS; i++) sheet.rings[i] = pp_placement_ring(&sheet.placement, &groups[i]);
    const struct pp_call_times times = {call_ns, &sheet};
    PP_TRY(pp_machine_check_rates(m, config));
    return pp_split_time_by(config, &one, point, ops, &times, layer_ns);
}
