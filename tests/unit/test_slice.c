/* SPDX-License-Identifier: Apache-2.0
 *
 * What the workers of a rank have of each tensor (core/model/slice.h), against what Megatron-LM's rules say of its
 * name; of experts each tensor rank has so many that lie together, and its expert ranks share these.
 */
#include "core/model/slice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/mix.h"
#include "kernels/model.h"

enum { MODELS = 300, PADDING = -1 };

static uint64_t state = 1;

static int below(int n)
{
    const uint64_t bits = pp_mix(state);
    state += PP_MIX_STEP;
    return (int)(bits % (uint64_t)n);
}

/* A random shape that so many workers can share. */
static struct pp_shape random_shape(void)
{
    const int tensor = 1 + below(5);
    struct pp_shape shape = {.d_model = 2 * (1 + below(6)), .layers = 1 + below(2), .tensor = tensor};
    shape.kv_heads = tensor * (1 + below(2));
    shape.heads = shape.kv_heads * (1 + below(3));
    shape.head_dim = 1 + below(4);
    shape.d_ff = 4 * tensor * (1 + below(3));
    do shape.vocab = 2 + below(30);
    while ((shape.vocab + tensor - 1) / tensor * (tensor - 1) >= shape.vocab);
    shape.activation = below(2) ? PP_SWIGLU : PP_RELU;
    shape.bias = below(4);
    shape.qk_norm = below(2);
    shape.positions = below(2) ? PP_POSITIONS_LEARNED : PP_POSITIONS_SINUSOIDAL;
    shape.max_positions = 1 + below(9);
    shape.replicas = 1 + below(3);
    shape.zero = shape.replicas > 1 && below(2);
    if (below(3) > 0) return shape;
    shape.expert_parallel = below(2) ? 1 + below(3) : 0;
    shape.experts = pp_shape_sharers(&shape) * (1 + below(3));
    shape.experts_per_token = 1;
    shape.d_ff = 1 + below(3);
    shape.shared_ff = tensor * below(4);
    shape.shared_gate = shape.shared_ff && below(2);
    shape.capacity_factor = 1;
    shape.bias = PP_NO_BIAS;
    shape.dense_layers = below(shape.layers);
    shape.experts_every = 1 + below(2);
    shape.dense_ff = 4 * tensor * (1 + below(3));
    return shape;
}

struct place {
    int64_t row, column;
};

/* Rows of queries of all heads, then of keys, then of values: a worker has those of its heads. */
static int64_t heads_row(const struct pp_shape *s, int k, int64_t row)
{
    const int64_t queries = (int64_t)s->heads / s->tensor * s->head_dim;
    const int64_t keys = (int64_t)s->kv_heads / s->tensor * s->head_dim;
    if (row < queries) return k * queries + row;
    const int64_t second = row - queries < keys ? 0 : 1, in = row - queries - second * keys;
    return (s->heads + second * s->kv_heads) * (int64_t)s->head_dim + k * keys + in;
}

static int64_t gates_row(const struct pp_shape *s, int ff, int k, int64_t row)
{
    const int64_t mine = ff / s->tensor, opened = row >= mine;
    return opened * ff + k * mine + row - opened * mine;
}

/* Of a feed-forward that all workers of a rank have columns of. */
static struct place cut_place(const struct pp_shape *s, const char *name, int ff, int k, struct place at)
{
    if (strstr(name, "linear1")) at.row = gates_row(s, ff, k, at.row);
    if (strstr(name, "linear2.weight")) at.column += (int64_t)k * ff / s->tensor;
    return at;
}

/* Whole experts, one behind the other; each has so many rows. */
static int64_t experts_row(const struct pp_shape *s, int member, int64_t row, int64_t each)
{
    const int tensor_rank = member % s->tensor, expert_rank = member / s->tensor;
    const int first = tensor_rank * (s->experts / s->tensor) + expert_rank * (s->experts / pp_shape_sharers(s));
    return first * each + row;
}

static int64_t words_row(const struct pp_shape *s, int k, int64_t row)
{
    const int64_t words = (s->vocab + s->tensor - 1) / s->tensor, word = k * words + row;
    return word < s->vocab ? word : PADDING;
}

/* Is the tensor, by its name, of a layer with experts? */
static bool is_beside_router(const struct pp_shape *s, const char *name)
{
    int layer = -1;
    if (sscanf(name, "layers.%d.", &layer) != 1 || !s->experts || layer < s->dense_layers) return false;
    return s->experts_every == 1 || (layer - s->dense_layers) % 2 == 0;
}

/* Where a worker's element lies in the whole tensor. */
static struct place expected_place(const struct pp_shape *s, const char *name, int member, struct place at)
{
    const int k = member % s->tensor;
    const bool experts = is_beside_router(s, name);
    if (strstr(name, "shared")) return strstr(name, "gate") ? at : cut_place(s, name, s->shared_ff, k, at);
    if (strstr(name, "in_proj")) at.row = heads_row(s, k, at.row);
    if (strstr(name, "linear1") && experts) at.row = experts_row(s, member, at.row, pp_linear1_width(s));
    if (strstr(name, "embedding") || strstr(name, "decoder")) at.row = words_row(s, k, at.row);
    if (strstr(name, "out_proj.weight")) at.column += (int64_t)k * s->heads / s->tensor * s->head_dim;
    if (strstr(name, "linear2.weight") && experts) at.row = experts_row(s, member, at.row, s->d_model);
    return experts ? at : cut_place(s, name, s->experts ? s->dense_ff : s->d_ff, k, at);
}

static int64_t expected_whole(const struct pp_shape *s, const struct pp_tensor *t, int k, int64_t local)
{
    const struct place at = expected_place(s, t->name, k, (struct place){local / t->local[1], local % t->local[1]});
    if (at.row == PADDING) return PADDING;
    assert_in_range(at.row, 0, t->shape[0] - 1);
    assert_in_range(at.column, 0, t->shape[1] - 1);
    return at.row * t->shape[1] + at.column;
}

/* Each slice is right and as long as it can be; counts how often each element of the whole tensor is there. */
static void check_worker(const struct pp_shape *s, const struct pp_tensor *t, int k, int *count)
{
    for (int64_t i = 0; i < t->local_elements; i++) {
        const struct pp_slice slice = pp_tensor_slice(t, s, k, i);
        const int64_t whole = expected_whole(s, t, k, i);
        int64_t n = 1;
        if (slice.whole != whole)
            fail_msg("%s: element %lld of worker %d of %d is %lld, not %lld", t->name, (long long)i, k,
                     pp_shape_sharers(s), (long long)slice.whole, (long long)whole);
        while (i + n < t->local_elements && expected_whole(s, t, k, i + n) == (whole < 0 ? PADDING : whole + n)) n++;
        if (slice.n != n)
            fail_msg("%s: %lld elements from %lld of worker %d of %d on, not %lld", t->name, (long long)slice.n,
                     (long long)i, k, pp_shape_sharers(s), (long long)n);
        if (whole >= 0) count[whole]++;
        if (whole < 0 && (k % s->tensor < s->tensor - 1 || i + n < t->local_elements))
            fail_msg("%s: worker %d of %d has filling before its end", t->name, k, pp_shape_sharers(s));
    }
}

static bool is_whole_in_each(const struct pp_tensor *t)
{
    return strstr(t->name, "norm") || strstr(t->name, "positions") || strstr(t->name, "out_proj.bias") ||
           strstr(t->name, "linear2.bias") || strstr(t->name, "router") || strstr(t->name, "shared.gate");
}

/* So many workers have each element. */
static int times_of(const struct pp_shape *s, const struct pp_tensor *t)
{
    const bool of_experts = is_beside_router(s, t->name) && !strstr(t->name, "shared") &&
                            (strstr(t->name, "linear1") || strstr(t->name, "linear2"));
    if (is_whole_in_each(t)) return pp_shape_sharers(s);
    return of_experts ? 1 : pp_shape_expert_parallel(s);
}

static void test_workers_have_each_element_once(void **unused)
{
    (void)unused;
    int filled = 0, shared = 0;
    for (int m = 0; m < MODELS; m++) {
        const struct pp_shape shape = random_shape();
        struct pp_model *model;
        if (pp_model_create(&shape, 1, "uniform", NULL, &model) != PP_OK) fail_msg("%s", pp_message());
        for (int i = 0; i < model->ntensors; i++) {
            const struct pp_tensor *t = &model->tensors[i];
            const int times = times_of(&shape, t), workers = pp_shape_sharers(&shape);
            int *count = calloc((size_t)t->elements, sizeof *count);
            assert_non_null(count);
            for (int k = 0; k < workers; k++) check_worker(&shape, t, k, count);
            for (int64_t e = 0; e < t->elements; e++)
                if (count[e] != times)
                    fail_msg("%s: %d workers have element %lld %d times", t->name, workers, (long long)e, count[e]);
            filled += times == 1 && workers * t->local_elements > t->elements;
            shared += times < workers;
            free(count);
        }
        pp_model_free(model);
    }
    assert_true(filled > 100 && shared > 1000);
}

/* Drawn by each worker alone, initial weights are those of the whole at the same places. */
static void check_drawn(const struct pp_model *model, int tensor, int member)
{
    const struct pp_tensor *t = &model->tensors[tensor];
    float *whole = calloc((size_t)t->elements, sizeof *whole);
    float *local = malloc((size_t)t->local_elements * sizeof *local);
    assert_true(whole && local);
    memset(local, 0xff, (size_t)t->local_elements * sizeof *local); /* NAN */
    pp_model_init_tensor(model, tensor, 9, whole);
    pp_model_init_local(model, tensor, 9, member, local);
    for (int64_t i = 0; i < t->local_elements; i++) {
        const int64_t at = pp_tensor_slice(t, &model->shape, member, i).whole;
        if (local[i] != (at < 0 ? 0 : whole[at]))
            fail_msg("%s: element %lld of worker %d", t->name, (long long)i, member);
    }
    free(whole);
    free(local);
}

static void test_workers_draw_their_own_elements(void **unused)
{
    (void)unused;
    for (int i = 0; i < MODELS / 10; i++) {
        struct pp_shape shape = random_shape();
        shape.init_std = i % 2 ? 0.02 : 0;
        struct pp_model *model;
        if (pp_model_create(&shape, 1, "uniform", NULL, &model) != PP_OK) fail_msg("%s", pp_message());
        for (int tensor = 0; tensor < model->ntensors; tensor++)
            for (int k = 0; k < pp_shape_sharers(&shape); k++) check_drawn(model, tensor, k);
        pp_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_workers_have_each_element_once),
                                       cmocka_unit_test(test_workers_draw_their_own_elements)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
