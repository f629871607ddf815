/* SPDX-License-Identifier: Apache-2.0
 *
 * What a ring of keys and values does beside flash: parts of attention, each of some keys, become one; columns of rows
 * are copied, or added, to where they belong.
 */
#include <math.h>

#include "kernels/cpu/simd/kernels.h"

/* Two sums of exponentials, by their logs, as one: its log, and which part of it each is. Of their difference alone, so
 * that nothing overflows. */
struct merged {
    float lse, of, of_part;
};
static struct merged merged_of(float lse, float part)
{
    const float less = expf(-fabsf(lse - part)), more = 1 / (1 + less);
    const bool first = lse >= part;
    return (struct merged){(first ? lse : part) + log1pf(less), first ? more : less * more, first ? less * more : more};
}

static void merge_row(float *ctx, const float *part, struct merged m, int n)
{
    for (int j = 0; j < n; j += VL)
        vf_store(ctx + j, n - j, vf_load(ctx + j, n - j) * m.of + vf_load(part + j, n - j) * m.of_part);
}

void PP_SIMD(pp_cpu_merge)(const struct pp_cpu_call *c)
{
    const struct pp_merge_dims *n = &c->call->merge;
    const float *part_lse = c->at.merge.part_lse;
    float *lse = c->at.merge.lse;
    for (int64_t t = 0; t < n->tokens; t++)
        for (int64_t h = 0; h < n->heads; h++) {
            const int64_t of = h * n->tokens + t, at = (t * n->heads + h) * n->dv;
            const struct merged m = merged_of(lse[of], part_lse[of]);
            lse[of] = m.lse;
            merge_row((float *)c->at.merge.ctx + at, (const float *)c->at.merge.part + at, m, n->dv);
        }
}

void PP_SIMD(pp_cpu_add_columns)(const struct pp_cpu_call *c)
{
    const struct pp_columns_dims *n = &c->call->columns;
    float *to = c->at.add_columns.to;
    const float *from = c->at.add_columns.from;
    for (int64_t row = 0; row < n->rows; row++, to += n->to_pitch, from += n->from_pitch)
        for (int j = 0; j < n->width; j += VL) {
            vf v = vf_load(from + j, n->width - j);
            if (n->adds) v += vf_load(to + j, n->width - j);
            vf_store(to + j, n->width - j, v);
        }
}
