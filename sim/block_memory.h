/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a plan whose times are those of blocks (core/job/blocks.h) that say how much they need.
 */
#ifndef PP_SIM_BLOCK_MEMORY_H
#define PP_SIM_BLOCK_MEMORY_H

#include "core/job/job.h"

/* Bytes of each rank, [P]. */
struct pp_block_memory {
    int64_t *state; /* parameters, gradients, and what the optimizer keeps */
    int64_t *kept;  /* the most that microbatches keep at once: from the start of F to the end of B, or of W */
};

/* Is it known? Not if blocks do not say it, nor with recomputation, which keeps what no block has told. */
bool pp_block_memory_known(const struct pp_job *job);
/* It must be known. Release with pp_block_memory_free(), also after a failure. */
pp_status pp_block_memory_find(const struct pp_job *job, struct pp_block_memory *out) PP_MUST_CHECK;
void pp_block_memory_free(struct pp_block_memory *memory);

#endif
