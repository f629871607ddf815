/* SPDX-License-Identifier: Apache-2.0
 *
 * What rounding to FP8 makes, as symbols (program_contents.h), and the copies of weights that a worker keeps.
 */
#ifndef PP_TESTS_FP8_CONTENTS_H
#define PP_TESTS_FP8_CONTENTS_H

#include "kernels/model.h"
#include "tests/unit/program_contents.h"

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

/* The matrices of a tensor, as products read them. */
static inline struct factor factor_of_tensor(const struct pp_model *model, const struct contents *m,
                                             const struct pp_tensor *t)
{
    const struct pp_shape *local = &model->local;
    const int times = t->of_experts ? local->experts / pp_shape_expert_parallel(local) : 1;
    const int64_t bytes = t->local_elements * 2;
    return (struct factor){.content = read_content(m, PP_MEM_PARAM16, t->offset16, bytes),
                           .rows = (int)t->local[0] / times,
                           .width = (int)t->local[1],
                           .times = times};
}

/* Where both copies of a tensor and their scales lie: parts of PP_MEM_PARAM16. */
struct places {
    int64_t numbers[2], amax, scale;
};
static inline struct places places_of(const struct pp_tensor *t)
{
    const int64_t end = t->offset8 + 2 * t->local_elements;
    return (struct places){{t->offset8, t->offset8 + t->local_elements}, end, end + (int64_t)sizeof(float)};
}

/* What an earlier program has left there. */
static inline void write_copies(const struct pp_model *model, struct contents *m, const struct pp_tensor *t)
{
    struct factor f = factor_of_tensor(model, m, t);
    const struct places at = places_of(t);
    write_content(m, PP_MEM_PARAM16, at.scale, sizeof(float), made_of(&f, SCALE));
    for (int turned = 0; turned < 2; turned++) {
        f.turned = turned;
        write_content(m, PP_MEM_PARAM16, at.numbers[turned], t->local_elements, made_of(&f, NUMBERS));
    }
}

/* The tensor that has this place for a copy, or for amax and scale; NULL: none has. */
static inline const struct pp_tensor *copied_at(const struct pp_model *model, const struct pp_stage *stage,
                                                const struct pp_ref *ref)
{
    const struct pp_tensor *first = &model->tensors[stage->first_tensor];
    if (ref->region != PP_MEM_PARAM16 || ref->row_bytes || ref->part_bytes || ref->expert_bytes) return NULL;
    for (const struct pp_tensor *t = first; t < first + stage->tensors; t++) {
        const struct places at = places_of(t);
        const bool here = ref->offset == at.numbers[0] || ref->offset == at.numbers[1] || ref->offset == at.amax ||
                          ref->offset == at.scale;
        if (t->offset8 >= 0 && here) return t;
    }
    return NULL;
}

#endif
