/* SPDX-License-Identifier: Apache-2.0 */
#include "core/job/process.h"

#include "core/plan/group.h"
#include "core/plan/trace.h"

int64_t pp_arena_whole_bytes(int64_t bytes)
{
    const int64_t page = bytes < PP_ARENA_PAGE_BYTES ? PP_ARENA_SMALL_PAGE_BYTES : PP_ARENA_PAGE_BYTES;
    const int64_t pages = bytes > 0 ? (bytes + page - 1) / page : 1;
    return pages * page;
}

/* Slices begin on cache lines, so the longest one may have a line more at each end. */
int64_t pp_reduce_piece_bytes(int members, int64_t most_bytes)
{
    const int64_t slice = (most_bytes / members / PP_REDUCE_LINE + 2) * PP_REDUCE_LINE;
    return slice < PP_REDUCE_PIECE_BYTES ? slice : PP_REDUCE_PIECE_BYTES;
}

int64_t pp_reduce_staging_bytes(int members, int64_t most_bytes)
{
    return PP_REDUCE_WINDOW * (members - 1) * pp_reduce_piece_bytes(members, most_bytes);
}

/* The class of this kind for the whole stage. */
static struct pp_class whole_of(int kind, int stage) { return (struct pp_class){.kind = kind, .stage = stage}; }

static int64_t most_summed(const struct pp_job *job, int kind, int rank, enum pp_param_set set)
{
    int64_t most = 0;
    for (int s = 0; s < job->train->stages; s++) {
        const struct pp_class all = whole_of(kind, s);
        const int64_t bytes = job->train->stage_rank[s] == rank ? pp_summed_bytes(job->model, &all, set) : 0;
        if (bytes > most) most = bytes;
    }
    return most;
}

int64_t pp_most_gradient_bytes(const struct pp_job *job, int rank, enum pp_param_set set)
{
    return most_summed(job, PP_REDUCE_GRAD, rank, set);
}

int64_t pp_most_share_bytes(const struct pp_job *job, int rank)
{
    return most_summed(job, PP_REDUCE_SHARE, rank, PP_DENSE);
}

static void add_program(const struct pp_job *job, const struct pp_program *program, enum pp_join_group group,
                        struct pp_most_joined *most)
{
    for (int i = 0; i < program->ncalls; i++) {
        const struct pp_join_work join = job->model_ops->call_join(&program->calls[i]);
        int64_t *bytes = pp_join_exchanges(join.op) ? &most->exchanged_bytes : &most->bytes;
        if (join.group != group) continue;
        if (join.bytes > *bytes) *bytes = join.bytes;
        if (join.pieces > most->pieces) most->pieces = join.pieces;
    }
}

struct pp_most_joined pp_job_most_joined(const struct pp_job *job, enum pp_join_group group)
{
    struct pp_most_joined most = {0};
    for (int i = 0; i < PP_PHASES; i++) {
        const struct pp_phase *phase = &job->phase[i];
        for (int c = 0; phase->plan && c < phase->plan->nclasses; c++)
            add_program(job, &phase->programs[c], group, &most);
    }
    return most;
}

static bool program_joins(const struct pp_job *job, const struct pp_program *program, enum pp_join_group group,
                          int type)
{
    for (int i = 0; i < program->ncalls; i++) {
        const struct pp_join_work join = job->model_ops->call_join(&program->calls[i]);
        if (join.op != PP_JOIN_NONE && join.op != PP_JOIN_AWAIT && join.group == group && join.type == type)
            return true;
    }
    return false;
}

bool pp_rank_joins(const struct pp_job *job, int rank, enum pp_join_group group, int type)
{
    for (int i = 0; i < PP_PHASES; i++) {
        const struct pp_phase *phase = &job->phase[i];
        for (int c = 0; phase->plan && c < phase->plan->nclasses; c++) {
            const int stage = phase->plan->classes[c].stage;
            if (stage < 0 || phase->plan->stage_rank[stage] != rank) continue;
            if (program_joins(job, &phase->programs[c], group, type)) return true;
        }
    }
    return false;
}

int64_t pp_process_joined_bytes(const struct pp_job *job)
{
    int64_t bytes = 0;
    for (int g = 0; g < PP_JOIN_GROUPS; g++) {
        const int n = pp_join_size(job->train, (enum pp_join_group)g);
        const int64_t most = n > 1 ? pp_job_most_joined(job, (enum pp_join_group)g).bytes : 0;
        if (most > 0) bytes += pp_arena_whole_bytes(pp_reduce_staging_bytes(n, most));
    }
    return bytes;
}

/* Events of the traced steps, on some ranks of one replica: each entry of an issue list is one event. */
static int64_t event_bytes(const struct pp_job *job, int first_rank, int ranks)
{
    const int64_t *start = job->train->issue_start;
    return job->config->trace_steps * (start[first_rank + ranks] - start[first_rank]) *
           (int64_t)sizeof(struct pp_event);
}

/* Workers that evaluate (pp_worker_evaluates()) keep a copy of the best weights so far; with ZeRO 3 of their share.
 * (Others do so where weights are split (pp_shape_splits_weights()), which those of the cpu, in float32, never are.) */
static int64_t best_bytes(const struct pp_job *job, int worker)
{
    int64_t elements = 0;
    if (!job->eval || !pp_worker_evaluates(job->train, worker)) return 0;
    const int rank = pp_worker_rank(job->train, worker);
    for (int i = 0; i < job->model->ntensors; i++) {
        const struct pp_tensor *t = &job->model->tensors[i];
        const int shares = job->model->shape.zero == PP_ZERO_PARAMETERS ? pp_plan_sharers(job->train, t->set) : 1;
        if (job->train->stage_rank[t->stage] == rank) elements += t->local_elements / shares;
    }
    return elements * (int64_t)sizeof(float);
}

int64_t pp_process_worker_bytes(const struct pp_job *job, int64_t joined, int worker)
{
    const int rank = pp_worker_rank(job->train, worker);
    const int groups = pp_plan_shard_groups(job->train);
    int64_t bytes = joined + pp_arena_whole_bytes(job->layout->arena_bytes[rank]);
    const int part = job->model->shape.bf16_sums ? 2 : 1; /* bfloat16 has half the bytes of float32 */
    for (int set = 0; set < PP_PARAM_SETS; set++) {
        const int sharers = pp_plan_sharers(job->train, set);
        const int64_t most = pp_most_gradient_bytes(job, rank, set);
        if (sharers > 1 && most > 0) bytes += pp_arena_whole_bytes(pp_reduce_staging_bytes(sharers, most / part));
    }
    if (groups > 1)
        bytes += pp_arena_whole_bytes(pp_reduce_staging_bytes(groups, pp_most_share_bytes(job, rank) / part));
    if (pp_ties_ranks(job->train, rank))
        bytes += pp_arena_whole_bytes(pp_reduce_staging_bytes(2, pp_tied_gradient(job->model, 0, 0).bytes));
    return bytes + best_bytes(job, worker) + event_bytes(job, rank, 1);
}

static int64_t plan_bytes(const struct pp_plan *plan)
{
    if (!plan) return 0;
    return plan->ntasks * (int64_t)sizeof *plan->tasks + plan->issue_start[plan->ranks] * (int64_t)sizeof *plan->issue;
}

static int64_t program_bytes(const struct pp_phase *phase)
{
    int64_t calls = 0;
    for (int c = 0; phase->plan && c < phase->plan->nclasses; c++)
        if (phase->same_as[c] == c) calls += phase->programs[c].ncalls;
    return calls * (int64_t)sizeof(struct pp_call);
}

int64_t pp_process_table_bytes(const struct pp_job *job, bool first)
{
    int64_t bytes = plan_bytes(job->train) + plan_bytes(job->eval);
    for (int i = 0; i < PP_PHASES; i++) bytes += program_bytes(&job->phase[i]);
    return bytes + (first ? job->train->replicas * job->train->members * event_bytes(job, 0, job->train->ranks) : 0);
}
