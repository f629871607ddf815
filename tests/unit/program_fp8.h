/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of FP8 programs: a program beside that of bf16, and what the calls that round factors leave in memory, in
 * scratch or in copies of weights. Contents of memory are symbols (program_contents.h).
 */
#ifndef PP_TESTS_PROGRAM_FP8_H
#define PP_TESTS_PROGRAM_FP8_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/calls/fp8.h"
#include "kernels/model.h"
#include "tests/unit/program_contents.h"

enum { OUTPUTS = 32 };

/* Where calls have rounded a matrix to, and whether a product has read it since. */
struct output {
    int64_t offset;
    bool read;
};

/* What there was in all programs; a test that never met one of these would prove little. */
static struct {
    int models, programs, products, of_experts;
    int small;     /* products of linears whose sizes are no multiples of 16 */
    int roundings; /* calls of to_fp8 */
    int outputs;   /* matrices that these make: one, or two of a gradient that is rounded both ways */
    int copies;    /* weights of which copies were written */
    int copied;    /* products that read a copy */
    int parts;     /* of these, some experts' of a copy */
    int gathered;  /* products whose weight has none, since workers keep shares alone */
} met;

/* Two programs of one class, call by call. */
struct pair {
    const struct pp_model *model; /* that of fp8 */
    const struct pp_stage *stage;
    const struct pp_program *bf16, *fp8;
    struct contents plain, rounded; /* memory of the worker in each program */
    struct who who;
    struct output outputs[OUTPUTS];
    int noutputs;
    int weights; /* FP8 products that make gradients of weights */
    int copied;  /* FP8 products that read a copy of a weight */
    int copies;  /* weights of which the program has written copies */
    const struct pp_call *call;
};

#define require(p, condition)                                                                                          \
    do {                                                                                                               \
        char require_text[96];                                                                                         \
        if (!(condition))                                                                                              \
            fail_msg("%s: %s (call %d): not so: %s", (p)->fp8->signature,                                              \
                     pp_call_text((p)->call, require_text, sizeof require_text), (int)((p)->call - (p)->fp8->calls),   \
                     #condition);                                                                                      \
    } while (0)

/* ---- what rounding makes ---- */

/* A factor as rounding takes it: `times` matrices [rows, width] of this content. */
struct factor {
    uint64_t content;
    int rows, width, times;
    bool turned, gradient;
};

enum { AMAX = 1, SCALE, NUMBERS };

static inline uint64_t made_of(const struct factor *f, int what)
{
    uint64_t hash = mixed(f->content, (uint64_t)what);
    const int sizes[] = {f->rows, f->width, f->times};
    for (int i = 0; i < 3; i++) hash = mixed(hash, (uint64_t)sizes[i]);
    if (what != AMAX) hash = mixed(hash, f->gradient);
    return what == NUMBERS ? mixed(hash, f->turned) : hash;
}

static inline struct factor factor_of_call(const struct pair *p, int x)
{
    const struct pp_fp8_dims *n = &p->call->fp8;
    return (struct factor){.content = content_of(&p->rounded, p->call, x, p->who),
                           .rows = n->rows,
                           .width = n->width,
                           .times = PP_TIMES(n),
                           .gradient = n->gradient};
}

/* The matrices of a tensor, as products read them. */
static inline struct factor factor_of_tensor(const struct pair *p, const struct pp_tensor *t)
{
    const struct pp_shape *local = &p->model->local;
    const int times = t->of_experts ? local->experts / pp_shape_expert_parallel(local) : 1;
    const int64_t bytes = t->local_elements * 2;
    return (struct factor){.content = read_content(&p->rounded, PP_MEM_PARAM16, t->offset16, bytes),
                           .rows = (int)t->local[0] / times,
                           .width = (int)t->local[1],
                           .times = times};
}

/* Where both copies of a tensor and their scales lie: parts of PP_MEM_PARAM16. */
static inline struct places {
    int64_t numbers[2], scale, amax;
} places_of(const struct pp_tensor *t)
{
    const int64_t end = t->offset8 + 2 * t->local_elements;
    return (struct places){{t->offset8, t->offset8 + t->local_elements}, end, end + (int64_t)sizeof(float)};
}

/* What an earlier program has left there. */
static inline void write_copies(struct pair *p, const struct pp_tensor *t)
{
    struct factor f = factor_of_tensor(p, t);
    const struct places at = places_of(t);
    write_content(&p->rounded, PP_MEM_PARAM16, at.scale, sizeof(float), made_of(&f, SCALE));
    for (int turned = 0; turned < 2; turned++) {
        f.turned = turned;
        write_content(&p->rounded, PP_MEM_PARAM16, at.numbers[turned], t->local_elements, made_of(&f, NUMBERS));
    }
}

/* The tensor that has this place for a copy, or for a part of one, or for amax and scale; NULL: none has. */
static inline const struct pp_tensor *copied_at(const struct pair *p, const struct pp_ref *ref)
{
    const struct pp_tensor *first = &p->model->tensors[p->stage->first_tensor];
    if (ref->region != PP_MEM_PARAM16 || ref->row_bytes || ref->part_bytes || ref->expert_bytes) return NULL;
    for (const struct pp_tensor *t = first; t < first + p->stage->tensors; t++) {
        const struct places at = places_of(t);
        const bool here = (ref->offset >= at.numbers[0] && ref->offset < at.amax) || ref->offset == at.amax ||
                          ref->offset == at.scale;
        if (t->offset8 >= 0 && here) return t;
    }
    return NULL;
}

/* Other FP8 matrices and their scales have scratch behind that of the bf16 program, and begin where cuBLAS wants
 * them. */
static inline void check_scratch(const struct pair *p, int i)
{
    const struct pp_ref *ref = &p->call->ref[i];
    const bool matrix = pp_call_operand(p->call, i).type == PP_TYPE_FP8;
    if (copied_at(p, ref)) return;
    require(p, ref->region == PP_MEM_WORK && !ref->row_bytes && !ref->part_bytes && !ref->expert_bytes);
    require(p, ref->offset >= p->bf16->work_bytes);
    require(p, ref->offset + bytes_of(p->call, i) <= p->fp8->work_bytes);
    require(p, ref->offset % (matrix ? PP_FP8_STEP : (int)sizeof(float)) == 0);
}

static inline void amax(struct pair *p)
{
    const struct factor x = factor_of_call(p, PP_OPERAND(amax, x));
    require(p, !x.gradient); /* the largest number is the same for both formats, so both have calls of one name */
    check_scratch(p, PP_OPERAND(amax, amax));
    set_content(&p->rounded, p->call, PP_OPERAND(amax, amax), p->who, made_of(&x, AMAX));
}

static inline void note_output(struct pair *p, int64_t offset)
{
    int i = 0;
    while (i < p->noutputs && p->outputs[i].offset != offset) i++;
    require(p, i < OUTPUTS && (i == p->noutputs || p->outputs[i].read));
    p->outputs[i] = (struct output){offset, false};
    p->noutputs += i == p->noutputs;
}

static inline void to_fp8(struct pair *p)
{
    const struct pp_to_fp8_refs *at = &p->call->at.to_fp8;
    struct factor x = factor_of_call(p, PP_OPERAND(to_fp8, x));
    require(p, content_of(&p->rounded, p->call, PP_OPERAND(to_fp8, amax), p->who) == made_of(&x, AMAX));
    require(p, at->q.region != PP_MEM_NONE || at->turned.region != PP_MEM_NONE);
    const int to[] = {PP_OPERAND(to_fp8, q), PP_OPERAND(to_fp8, turned)};
    const struct pp_tensor *copied = copied_at(p, &at->q);
    if (copied)
        require(p, at->x.offset == copied->offset16 && at->q.offset == places_of(copied).numbers[0] &&
                       at->turned.offset == places_of(copied).numbers[1]);
    for (int turned = 0; turned < 2; turned++) {
        x.turned = turned;
        if (p->call->ref[to[turned]].region == PP_MEM_NONE) continue;
        check_scratch(p, to[turned]);
        set_content(&p->rounded, p->call, to[turned], p->who, made_of(&x, NUMBERS));
        if (!copied) note_output(p, p->call->ref[to[turned]].offset);
        met.outputs++;
    }
    p->copies += copied != NULL;
    check_scratch(p, PP_OPERAND(to_fp8, scale));
    set_content(&p->rounded, p->call, PP_OPERAND(to_fp8, scale), p->who, made_of(&x, SCALE));
    met.roundings++;
}

#endif
