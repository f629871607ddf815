/* SPDX-License-Identifier: Apache-2.0
 *
 * Shares: memory of which each member of a group has an equal part, tensor by tensor (core/shape.h: pp_shape.zero).
 * The parts of a tensor lie one behind the other, in the order of members; a member's share is its part of each. What
 * collectives do with shares is named here, as lists of tensors; positions in a share count its bytes, tensor after
 * tensor.
 */
#ifndef PP_EXEC_SHARES_H
#define PP_EXEC_SHARES_H

#include "core/job.h"

enum pp_shares_use {
    PP_SHARES_SCATTER, /* each member gets the sum of its share; the others' stay with what they held */
    PP_SHARES_GATHER,  /* each member gets the others' shares as they are */
    PP_SHARES_SUM      /* each member gets the sums of all shares: the first of these two, then the second */
};

struct pp_share_tensor {
    int64_t offset;     /* of the first member's part, from the base */
    int64_t part_bytes; /* of each part */
    int64_t at;         /* its position in a share */
};

struct pp_shares {
    int use; /* enum pp_shares_use */
    int n;
    int64_t bytes; /* of a share */
    struct pp_share_tensor tensors[];
};

/* A piece of a share that lies in one place. */
struct pp_share_run {
    int64_t offset; /* the first member's, from the base */
    int64_t stride; /* from a member's to the next one's */
    int64_t bytes;
};

/* Of a class of a job with shares. REDUCE_GRAD scatters gradients of a set, GATHER_PARAM gathers what others read of a
 * stage's parameters of it, float32 or bfloat16; the base is the arena, or of a plan with shards the slot.
 * REDUCE_SHARE, without shards, sums this worker's share of all gradients, in equal parts, one of each group. free()
 * it. */
pp_status pp_shares_create(const struct pp_job *job, const struct pp_class *cls, enum pp_param_set set, int worker,
                           struct pp_shares **out) PP_MUST_CHECK;

/* The same lists of half as large numbers, tensor behind tensor, for so many members. free() it. */
pp_status pp_shares_create_sent(const struct pp_shares *shares, int members, struct pp_shares **out) PP_MUST_CHECK;

/* Memory of which each member has an equal part, one behind the other; parts are set for each use of it. free() it. */
pp_status pp_shares_create_plain(struct pp_shares **out) PP_MUST_CHECK;
void pp_shares_set_plain(struct pp_shares *shares, int use, int64_t part_bytes);

/* The longest piece from `at` on, of at most so many bytes; at < shares->bytes. */
struct pp_share_run pp_shares_run(const struct pp_shares *shares, int64_t at, int64_t most);

#endif
