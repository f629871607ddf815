/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole models with experts: gradients against finite differences, that of the loss that makes routers even among them,
 * and models whose experts do what one feed-forward does.
 */
#include "kernels/model_program.h"
#include "tests/unit/tiny_model.h"

static bool has_experts(const struct runner *r, int stage, int layer)
{
    return pp_layer_has_experts(&r->shape, r->model->stages[stage].first_layer + layer);
}

static const char *slot_memory(const struct runner *r, int stage, int m, int layer, int of, int64_t *bytes)
{
    const struct pp_program_spec spec = runner_spec(r);
    const int64_t tokens = (int64_t)r->chunk_rows[m] * r->seq;
    struct pp_slot slot;
    pp_slot_layout(r->model, stage, &spec, &slot);
    const struct pp_buffer buffers[] = {slot.probabilities, slot.counts, slot.places};
    const int64_t sizes[] = {tokens * r->shape.experts, r->shape.experts, tokens * r->shape.experts_per_token};
    int64_t before = 0;
    for (int l = 0; l < layer; l++) before += slot.layer_bytes[has_experts(r, stage, l)];
    *bytes = sizes[of] * 4;
    return (const char *)r->act[stage][m] + buffers[of].offset + before;
}

enum { PROBABILITIES, COUNTS, PLACES };

static double sum_of(const float *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)x[i];
    return sum;
}

/* Of one layer of a microbatch: experts * sum of f P, by the part of the batch's tokens. */
static double unevenness(const struct runner *r, int stage, int m, int layer)
{
    int64_t bytes;
    const int experts = r->shape.experts, tokens = r->chunk_rows[m] * r->seq;
    const float *p = (const void *)slot_memory(r, stage, m, layer, PROBABILITIES, &bytes);
    const float *counts = (const void *)slot_memory(r, stage, m, layer, COUNTS, &bytes);
    double sum = 0;
    for (int e = 0; e < experts; e++) {
        double mean = 0;
        for (int t = 0; t < tokens; t++) mean += (double)p[t * experts + e] / sum_of(p + t * experts, experts) / tokens;
        sum += counts[e] / (tokens * r->shape.experts_per_token) * mean;
    }
    return experts * sum * tokens / (r->rows * r->seq);
}

/* Of the batch, with what routers are told; *routes: a hash of who has which place. */
static double whole_loss(struct runner *r, uint64_t *routes)
{
    double loss = runner_loss(r);
    *routes = 0;
    for (int s = 0; s < r->stages; s++)
        for (int m = 0; m < r->chunks; m++)
            for (int l = 0; l < r->model->stages[s].layers; l++) {
                int64_t bytes;
                if (!has_experts(r, s, l)) continue;
                const char *places = slot_memory(r, s, m, l, PLACES, &bytes);
                for (int64_t i = 0; i < bytes; i++) *routes = (*routes ^ (uint8_t)places[i]) * UINT64_C(1099511628211);
                loss += r->shape.aux_loss * unevenness(r, s, m, l);
            }
    return loss;
}

#ifdef __SANITIZE_ADDRESS__
enum { ELEMENTS = 12 };
#else
enum { ELEMENTS = 60 };
#endif

/* As in test_model_gradient.c; elements whose difference would lead tokens elsewhere say nothing. */
static double tensor_error(struct runner *r, int tensor, int *elsewhere, int *all)
{
    const double h = 2e-3;
    const int64_t n = r->model->tensors[tensor].elements, stride = n > ELEMENTS ? (n / ELEMENTS) | 1 : 1;
    float *w = runner_tensor(r, r->param, tensor), *g = runner_tensor(r, r->grad, tensor);
    double error = 0, norm = 0;
    uint64_t routes, above_routes, below_routes;
    whole_loss(r, &routes);
    for (int64_t i = 0; i < n; i += stride) {
        const float kept = w[i];
        w[i] = (float)(kept + h);
        const double up = w[i], above = whole_loss(r, &above_routes);
        w[i] = (float)(kept - h);
        const double numeric = (above - whole_loss(r, &below_routes)) / (up - w[i]);
        w[i] = kept;
        (*all)++;
        if (routes != above_routes || routes != below_routes) {
            (*elsewhere)++;
            continue;
        }
        error += (numeric - g[i]) * (numeric - g[i]);
        norm += (double)g[i] * g[i];
    }
    return sqrt(error) / (sqrt(norm) + 1e-3);
}

/* In the place of the gradient of experts' biases are the numbers of tokens that have chosen them. */
static void check_loads(struct runner *r, int tensor)
{
    const float *loads = runner_tensor(r, r->grad, tensor);
    float sum = 0;
    for (int e = 0; e < r->shape.experts; e++) {
        assert_true(loads[e] >= 0 && loads[e] <= (float)(r->rows * r->seq) && loads[e] == floorf(loads[e]));
        sum += loads[e];
    }
    assert_true(sum == (float)(r->rows * r->seq * r->shape.experts_per_token));
}

static void check_gradients(struct runner r)
{
    int elsewhere = 0, all = 0;
    runner_open(&r);
    runner_gradients(&r);
    for (int i = 0; i < r.model->ntensors; i++) {
        if (r.model->tensors[i].loads) {
            check_loads(&r, i);
            continue;
        }
        const double error = tensor_error(&r, i, &elsewhere, &all);
        if (!(error <= 6e-3)) fail_msg("%s: relative error %g of the gradient", r.model->tensors[i].name, error);
    }
    assert_true(elsewhere < all / 2);
    runner_close(&r);
}

static void test_gradients(void **state)
{
    (void)state;
    for (int kind = EXPERTS; kind < ALL_KINDS; kind++)
        for (int chosen = 1; chosen <= 3; chosen++)
            for (int roomy = 0; roomy < 2; roomy++) {
                struct pp_shape shape = of_kind(tiny, kind);
                shape.dropout = 0.1 * roomy;
                shape.experts_per_token = chosen;
                shape.capacity_factor = roomy ? 4 : 0.8;
                shape.aux_loss = chosen == 2 ? 0.5 : 0;
                check_gradients(make_runner(shape, 2));
            }
}

/* The tensor of this name; -1: there is none. */
static int tensor_named(const struct runner *r, const char *name)
{
    for (int i = 0; i < r->model->ntensors; i++)
        if (strcmp(r->model->tensors[i].name, name) == 0) return i;
    return -1;
}

/* Gives all experts what the one feed-forward has. Routers stay. */
static void share_weights(struct runner *one, struct runner *many)
{
    for (int i = 0; i < one->model->ntensors; i++) {
        const struct pp_tensor *t = &one->model->tensors[i];
        const int same = tensor_named(many, t->name);
        const int64_t copies = many->model->tensors[same].elements / t->elements;
        for (int64_t k = 0; k < copies; k++)
            memcpy(runner_tensor(many, many->param, same) + k * t->elements, runner_tensor(one, one->param, i),
                   sizeof(float) * (size_t)t->elements);
    }
}

static void assert_near(const float *a, const float *b, int64_t n, double tolerance, const char *name)
{
    float most = 1e-3f;
    for (int64_t k = 0; k < n; k++) most = fmaxf(most, fabsf(a[k]));
    for (int64_t k = 0; k < n; k++)
        if (!(fabsf(a[k] - b[k]) <= tolerance * most))
            fail_msg("%s[%lld]: %g and %g", name, (long long)k, (double)a[k], (double)b[k]);
}

/* Where all experts are alike and have room for all, it does not matter who has a token: gates add up to 1. The one
 * feed-forward's gradients are the sum of theirs. */
static void compare_alike(struct pp_shape dense, int experts, int chosen)
{
    dense.bias = PP_NO_BIAS;
    dense.residual_only = true; /* what experts make inside is never dropped */
    struct runner one = make_runner(dense, 2), many = one;
    many.shape = with_experts(dense, experts, chosen, (double)experts / chosen);
    many.shape.aux_loss = 0;
    runner_open(&one);
    runner_open(&many);
    share_weights(&one, &many);
    const double loss = runner_gradients(&one);
    assert_true(fabs(runner_gradients(&many) - loss) <= 1e-5 * fabs(loss));
    for (int i = 0; i < one.model->ntensors; i++) {
        const struct pp_tensor *t = &one.model->tensors[i];
        const int same = tensor_named(&many, t->name);
        const int64_t copies = many.model->tensors[same].elements / t->elements;
        float *sum = runner_tensor(&many, many.grad, same);
        for (int64_t k = 1; k < copies; k++)
            for (int64_t j = 0; j < t->elements; j++) sum[j] += sum[k * t->elements + j];
        assert_near(runner_tensor(&one, one.grad, i), sum, t->elements, 3e-5, t->name);
    }
    runner_close(&one);
    runner_close(&many);
}

static void test_experts_alike(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        compare_alike(of_kind(tiny, kind), 1, 1);
        compare_alike(of_kind(tiny, kind), 4, 2);
        compare_alike(of_kind(tiny, kind), 3, 3);
        compare_alike(of_kind(tiny, kind), 8, 1);
    }
}

/* With room for all, and routers left alone, it does not matter with whom a token is in a microbatch. */
static void test_chunks(void **state)
{
    (void)state;
    for (int kind = EXPERTS; kind < ALL_KINDS; kind++) {
        struct runner whole = make_runner(of_kind(tiny, kind), 1);
        whole.shape.capacity_factor = 5;
        whole.shape.aux_loss = 0;
        whole.chunks = 1;
        struct runner cut = whole;
        cut.stages = 2;
        cut.chunks = 3;
        compare_runs(whole, cut, 2e-5f);
    }
}

/* Whom an expert has no room for it leaves out: the residual stream alone goes on. */
static void test_room_matters(void **state)
{
    (void)state;
    for (int kind = EXPERTS; kind < ALL_KINDS; kind++) {
        struct runner roomy = make_runner(of_kind(tiny, kind), 1), tight;
        roomy.shape.capacity_factor = 5;
        tight = roomy;
        tight.shape.capacity_factor = 0.5;
        runner_open(&roomy);
        runner_open(&tight);
        assert_true(fabs(runner_loss(&roomy) - runner_loss(&tight)) > 1e-4);
        assert_true(pp_model_act_bytes(tight.model, 0, &(struct pp_program_spec){7, 3, true, false}) <
                    pp_model_act_bytes(roomy.model, 0, &(struct pp_program_spec){7, 3, true, false}));
        runner_close(&roomy);
        runner_close(&tight);
    }
}

/* An even share is 100 places; products of decimal fractions round up to no more than they say. */
static void test_capacity(void **state)
{
    static const struct {
        double factor;
        int64_t capacity;
    } cases[] = {{1, 100}, {1.1, 110}, {1.101, 111}, {2, 200}, {1e9, 200}, {0.001, 1}, {5e-324, 1}};
    struct pp_shape shape = {.experts = 4, .experts_per_token = 2};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        shape.capacity_factor = cases[i].factor;
        assert_int_equal(pp_expert_capacity(&shape, 200), cases[i].capacity);
    }
}

/* Stages of as many layers with experts, but not at the same places: with --checkpoint layers:N their slots differ. */
static void test_stages_of_one_make(void **state)
{
    (void)state;
    struct pp_shape shape = with_experts(tiny, 2, 1, 2);
    struct pp_model *model;
    shape.layers = 20;
    shape.experts_every = 3;
    assert_int_equal(pp_model_create(&shape, 5, NULL, NULL, &model), PP_OK);
    const struct pp_stage *s = model->stages;
    assert_int_equal(s[1].layers, 4);
    assert_int_equal(pp_stage_layers_with_experts(model, &s[1], 4), 1); /* of layers 4 .. 7 the third */
    assert_int_equal(pp_stage_layers_with_experts(model, &s[2], 4), 1); /* of layers 8 .. 11 the second */
    assert_true(s[1].group == 1 && s[2].group == 2);
    pp_model_free(model);
    shape.experts_every = 2;
    assert_int_equal(pp_model_create(&shape, 5, NULL, NULL, &model), PP_OK);
    assert_true(model->stages[1].group == 1 && model->stages[2].group == 1 && model->stages[3].group == 1);
    pp_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_experts_alike),
        cmocka_unit_test(test_chunks),    cmocka_unit_test(test_room_matters),
        cmocka_unit_test(test_capacity),  cmocka_unit_test(test_stages_of_one_make),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
