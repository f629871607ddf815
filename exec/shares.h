/* SPDX-License-Identifier: Apache-2.0
 *
 * Shares: memory of which each member of a group has an equal part, tensor by tensor (core/shape/shape.h:
 * pp_shape.zero). The parts of a tensor lie one behind the other, in the order of members; a member's share is its part
 * of each. What collectives do with shares is named here, as lists of tensors; positions in a share count its bytes,
 * tensor after tensor.
 */
#ifndef PP_EXEC_SHARES_H
#define PP_EXEC_SHARES_H

#include "core/job/job.h"

enum pp_shares_use {
    PP_SHARES_SCATTER, /* each member gets the sum of its own share; its memory of other shares stays as it was */
    PP_SHARES_GATHER,  /* each member gets the shares of the others as they are */
    PP_SHARES_SUM      /* each member gets the sums of all shares: scatter, then gather */
};

struct pp_share_tensor {
    int64_t offset;     /* of the first member's part, from the base; the parts of the other members follow */
    int64_t part_bytes; /* of one part */
    int64_t at;         /* position of a part in its share: bytes of the tensors before it */
};

struct pp_shares {
    int use; /* enum pp_shares_use */
    int n;
    int64_t bytes; /* of a share */
    struct pp_share_tensor tensors[];
};

/* The same contiguous piece of every member's share. */
struct pp_share_run {
    int64_t offset; /* of the first member's piece, from the base */
    int64_t stride; /* from the piece of one member to that of the next */
    int64_t bytes;
};

/* What a collective task of a class works on, in a job with shares:
 *   REDUCE_GRAD   scatters the gradients of a stage that belong to the set;
 *   GATHER_PARAM  gathers what products read of the stage's parameters of the set, float32 or bfloat16;
 *   REDUCE_SHARE  (plans without shards) sums this worker's share of all gradients of the stage over the groups of
 *                 replicas: the share is cut into as many equal parts as there are groups.
 * Offsets count from the worker's arena; in a plan with shards from the slot of the task. The caller frees *out with
 * free(). */
pp_status pp_shares_create(const struct pp_job *job, const struct pp_class *cls, enum pp_param_set set, int worker,
                           struct pp_shares **out) PP_MUST_CHECK;

/* The same shares rounded to numbers of half the size, in memory of their own: there the tensors lie one behind the
 * other, each with the parts of so many members. The caller frees *out with free(). */
pp_status pp_shares_create_sent(const struct pp_shares *shares, int members, struct pp_shares **out) PP_MUST_CHECK;

/* Shares of one block of memory, of which each member has an equal part, in the order of members. set_plain() sets the
 * use and the size of a part, before each use. The caller frees *out with free(). */
pp_status pp_shares_create_plain(struct pp_shares **out) PP_MUST_CHECK;
void pp_shares_set_plain(struct pp_shares *shares, int use, int64_t part_bytes);

/* The longest contiguous piece that begins at position `at` of a share (at < shares->bytes), of `most` bytes at
 * most. */
struct pp_share_run pp_shares_run(const struct pp_shares *shares, int64_t at, int64_t most);

#endif
