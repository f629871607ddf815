/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/shares.h"

#include <stdlib.h>

#include "core/plan/workers.h"

static void add(struct pp_shares *shares, int64_t offset, int64_t part_bytes)
{
    shares->tensors[shares->n++] = (struct pp_share_tensor){offset, part_bytes, shares->bytes};
    shares->bytes += part_bytes;
}

/* Where the stage's regions begin, from the base: the arena, or the slot of a part. */
struct places {
    int64_t values, copies, gradients;
};

static struct places places_of(const struct pp_job *job, const struct pp_class *cls)
{
    const struct pp_layout *layout = job->layout;
    struct places at = {layout->param_offset[cls->stage], layout->param16_offset[cls->stage],
                        layout->grad_offset[cls->stage]};
    if (job->train->shards) at.gradients = -pp_part_gradients(job->model, cls).offset;
    if (!job->train->shard_params) return at;
    const struct pp_part_memory memory = pp_part_memory_of(job->model, cls);
    at.values = -memory.values.offset;
    at.copies = memory.copies_at - memory.copies.offset;
    return at;
}

static int use_of(int kind)
{
    if (kind == PP_REDUCE_SHARE) return PP_SHARES_SUM;
    return kind == PP_GATHER_PARAM ? PP_SHARES_GATHER : PP_SHARES_SCATTER;
}

pp_status pp_shares_create(const struct pp_job *job, const struct pp_class *cls, enum pp_param_set set, int worker,
                           struct pp_shares **out)
{
    const int use = use_of(cls->kind), groups = pp_plan_shard_groups(job->train);
    const struct pp_stage *s = &job->model->stages[cls->stage];
    const struct pp_tensor_range made = pp_part_tensors(s, cls);
    const struct places at = places_of(job, cls);
    struct pp_shares *shares;
    PP_TRY(pp_alloc_bytes(&shares, 1, sizeof *shares + 2 * (size_t)s->tensors * sizeof shares->tensors[0]));
    shares->use = use;
    for (int i = made.first; i < made.first + made.n; i++) {
        const struct pp_tensor *t = &job->model->tensors[s->first_tensor + i];
        const int64_t bytes = t->part_elements * (int64_t)sizeof(float);
        const int own = pp_worker_share(job->train, worker, t->set);
        if (use != PP_SHARES_SUM && t->set != (int)set) continue;
        if (use == PP_SHARES_SCATTER) add(shares, at.gradients + t->offset, bytes);
        if (use == PP_SHARES_SUM) add(shares, at.gradients + t->offset + own * bytes, bytes / groups);
        if (use != PP_SHARES_GATHER) continue;
        if (t->value_offset >= 0) add(shares, at.values + t->value_offset, bytes);
        if (t->offset16 >= 0) add(shares, at.copies + t->offset16, t->part_elements * pp_element_bytes(PP_BF16));
    }
    *out = shares;
    return PP_OK;
}

pp_status pp_shares_create_sent(const struct pp_shares *shares, int members, struct pp_shares **out)
{
    struct pp_shares *sent;
    PP_TRY(pp_alloc_bytes(&sent, 1, sizeof *sent + (size_t)shares->n * sizeof sent->tensors[0]));
    sent->use = shares->use;
    for (int i = 0; i < shares->n; i++) add(sent, members * sent->bytes, shares->tensors[i].part_bytes / 2);
    *out = sent;
    return PP_OK;
}

pp_status pp_shares_create_plain(struct pp_shares **out)
{
    return pp_alloc_bytes(out, 1, sizeof **out + sizeof(*out)->tensors[0]);
}

void pp_shares_set_plain(struct pp_shares *shares, int use, int64_t part_bytes)
{
    shares->use = use;
    shares->n = 0;
    shares->bytes = 0;
    add(shares, 0, part_bytes);
}

struct pp_share_run pp_shares_run(const struct pp_shares *shares, int64_t at, int64_t most)
{
    int low = 0, high = shares->n - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (shares->tensors[middle].at <= at)
            low = middle;
        else
            high = middle - 1;
    }
    const struct pp_share_tensor *t = &shares->tensors[low];
    const int64_t skip = at - t->at, left = t->part_bytes - skip;
    return (struct pp_share_run){t->offset + skip, t->part_bytes, left < most ? left : most};
}
