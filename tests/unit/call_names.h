/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of calls are the keys of kernels' times, so calls of one name must do the same work.
 */
#ifndef PP_TESTS_UNIT_CALL_NAMES_H
#define PP_TESTS_UNIT_CALL_NAMES_H

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/model.h"

struct named_call {
    char name[96];
    double flops, bytes, again_bytes;
    struct pp_work work[2]; /* of a processor, of a GPU */
};

static inline int by_name(const void *a, const void *b)
{
    return strcmp(((const struct named_call *)a)->name, ((const struct named_call *)b)->name);
}

static inline bool work_alike(const struct named_call *a, const struct named_call *b)
{
    return a->flops == b->flops && a->bytes == b->bytes && a->again_bytes == b->again_bytes &&
           memcmp(a->work, b->work, sizeof a->work) == 0;
}

/* Their names do not tell whether they read what they write to (gemm_nn, combine), or whether a tensor has a copy in
 * bfloat16 (steps): a few percent of their time. With another name they would lose the times of all old profiles. */
static inline bool tells_less(int kernel)
{
    return kernel == PP_KERNEL_GEMM_NN || kernel == PP_KERNEL_COMBINE || kernel == PP_KERNEL_SGD ||
           kernel == PP_KERNEL_ADAMW || kernel == PP_KERNEL_ADAMW_BF16;
}

/* Does the call work as those of its name have that came before? */
static inline bool name_holds(const struct pp_call *call)
{
    static void *all; /* of the process */
    struct named_call *c, **found;
    if (PP_NEW(&c, 1) != PP_OK) return false;
    pp_call_text(call, c->name, sizeof c->name);
    c->flops = pp_call_flops(call);
    c->bytes = pp_call_bytes(call);
    c->again_bytes = pp_call_again_bytes(call);
    for (int gpu = 0; gpu < 2; gpu++) c->work[gpu] = pp_call_work(call, gpu);
    found = tsearch(c, &all, by_name);
    if (!found || *found == c) return found != NULL;
    const bool alike = work_alike(*found, c) || tells_less(call->kernel);
    free(c);
    return alike;
}

/* All calls of a model's tasks, by microbatches of so many tokens in each row. */
static inline void check_names(const struct pp_model *model, int seq)
{
    enum { ROWS = 3 };
    static const int kinds[] = {PP_F, PP_B, PP_NORM, PP_STEP};
    struct pp_program program;
    char text[96];
    for (int i = 0; i < 4 * model->nstages; i++) {
        const struct pp_class cls = {kinds[i % 4], i / 4, i % 4 < 2 ? ROWS : 0, 0, 1};
        const struct pp_program_spec spec = {seq, ROWS, true, false};
        if (pp_model_program(model, &cls, &spec, &program) != PP_OK) fail_msg("%s", pp_message());
        for (int k = 0; k < program.ncalls; k++)
            if (!name_holds(&program.calls[k]))
                fail_msg("not all calls named \"%s\" do the same work",
                         pp_call_text(&program.calls[k], text, sizeof text));
        pp_program_free(&program);
    }
}

#endif
