/* SPDX-License-Identifier: Apache-2.0
 *
 * Block times: how long the blocks of a model take that somebody has measured, in PyTorch for example, and how much
 * memory they need (docs/FORMATS.md, "Block times"). Blocks are what a pipeline may be cut between: the embedding,
 * layers, the head.
 */
#ifndef PP_CORE_JOB_BLOCKS_H
#define PP_CORE_JOB_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/plan/cut.h"

enum { PP_MOST_BLOCKS = 4096 };

/* Of one block, or of all blocks of a stage: the sums. Times are those of one microbatch. */
struct pp_block {
    double forward_ms;
    double backward_ms;         /* the whole backward */
    double input_ms, weight_ms; /* its two halves, if a schedule cuts it */
    double step_ms;             /* the optimizer's step, once for all microbatches */
    double state_mib;           /* parameters, gradients, and what the optimizer keeps */
    double kept_mib;            /* what a microbatch's forward keeps for its backward */
};

struct pp_blocks {
    int n; /* 1 to PP_MOST_BLOCKS */
    struct pp_block *block;
    bool stepped;  /* step_ms is known */
    bool sized;    /* state_mib and kept_mib are known */
    double hop_ms; /* a transfer between two ranks */
    uint64_t hash; /* of all figures */
};

/* Reads "FILE" or "FILE,C", C being the hop in ms (core/options/times_file.h). PP_USAGE if there is no such file,
 * PP_INPUT if it is no table of block times, PP_IO if it cannot be read. Release with pp_blocks_free(). */
pp_status pp_blocks_read(const char *times, struct pp_blocks **out) PP_MUST_CHECK;
void pp_blocks_free(struct pp_blocks *blocks); /* NULL is fine */

/* Cuts the blocks into stages. split: "time": these take as long as each other, as far as whole blocks allow, in this
 * way; "uniform": they have as many blocks; or the blocks of each stage "3,5". stage_rank, counts (blocks of each
 * stage): [stages]. PP_USAGE if there are more stages than blocks, or if the list does not fit. */
pp_status pp_blocks_cut(const struct pp_blocks *blocks, const char *split, struct pp_cut_way way, int stages,
                        const int *stage_rank, int *counts) PP_MUST_CHECK;
/* Adds up what each stage has. out: [stages] */
void pp_blocks_add_up(const struct pp_blocks *blocks, int stages, const int *counts, struct pp_block *out);

#endif
