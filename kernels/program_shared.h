/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the model: what layers with experts have beside these.
 */
#ifndef PP_KERNELS_PROGRAM_SHARED_H
#define PP_KERNELS_PROGRAM_SHARED_H

#include "kernels/kernels.h"

struct pp_expert_scratch;
struct pp_writer;

/* The feed-forward beside experts, of all tokens; these write nothing where there is none, and return whether there is
 * one. From x [T, d] to u; from u to z [T, d]; u once more from a. */
void pp_write_shared_up(struct pp_writer *w, int l, struct pp_ref x);
bool pp_write_shared_down(struct pp_writer *w, int l, struct pp_ref z);
void pp_write_shared_again(struct pp_writer *w, int l);
/* Takes the scratch that its gradients need. */
void pp_writer_shared_scratch(struct pp_writer *w, struct pp_expert_scratch *scratch);
/* From dz [T, d] to the gradient at its second linear's input; from there to that at its first linear's output. What
 * its gate adds to dx, the gradient at x, is the same in all workers of a rank, so pp_write_shared_grad() adds it
 * before sums over them. pp_write_shared_input_grad() adds the rest, of which each has a part, as `mode` says. */
void pp_write_shared_inner_grad(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch, struct pp_ref dz);
void pp_write_shared_grad(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch, struct pp_ref dx);
bool pp_write_shared_input_grad(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch,
                                enum pp_gemm_mode mode, struct pp_ref dx);
/* The gradients of its weights, behind these. */
void pp_write_shared_weights(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch, struct pp_ref dz,
                             struct pp_ref x);

#endif
