/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of whole models against finite differences, and what must not change a bit of them.
 */
#include "tests/unit/tiny_model.h"

#ifdef __SANITIZE_ADDRESS__ /* which sees what a program does the first time */
enum { ELEMENTS = 12 };
#else
enum { ELEMENTS = 60 };
#endif

/* |numeric - analytic| / |analytic| over the elements of a tensor (about ELEMENTS of them, spread evenly, in odd steps:
 * columns do not repeat). */
static double tensor_error(struct runner *r, int tensor)
{
    const double h = 4e-3;
    const int64_t n = r->model->tensors[tensor].elements, stride = n > ELEMENTS ? (n / ELEMENTS) | 1 : 1;
    float *w = runner_tensor(r, r->param, tensor), *g = runner_tensor(r, r->grad, tensor);
    double error = 0, norm = 0;
    for (int64_t i = 0; i < n; i += stride) {
        const float kept = w[i];
        w[i] = (float)(kept + h);
        const double up = w[i], above = runner_loss(r);
        w[i] = (float)(kept - h);
        const double numeric = (above - runner_loss(r)) / (up - w[i]);
        w[i] = kept;
        error += (numeric - g[i]) * (numeric - g[i]);
        norm += (double)g[i] * g[i];
    }
    return sqrt(error) / (sqrt(norm) + 1e-3); /* a key's bias has no gradient: softmax does not see it */
}

/* Biases that keep each unit of the feed-forward on or off: a finite difference across relu's kink says nothing. */
static void avoid_kinks(struct runner *r)
{
    for (int i = 0; i < r->model->ntensors; i++) {
        if (!strstr(r->model->tensors[i].name, "linear1.bias")) continue;
        float *bias = runner_tensor(r, r->param, i);
        for (int64_t k = 0; k < r->model->tensors[i].elements; k++) bias[k] = k % 2 ? 3 : -3;
    }
}

/* Learnt positions as large as sines and cosines: over a finite difference a norm of small numbers is not straight. */
static void enlarge_positions(struct runner *r)
{
    const int positions = r->model->stages[0].first_tensor + 1;
    float *w = runner_tensor(r, r->param, positions);
    for (int64_t k = 0; k < r->model->tensors[positions].elements; k++) w[k] *= 10;
}

static void check_gradients(struct runner r)
{
    runner_open(&r);
    if (r.shape.positions == PP_POSITIONS_LEARNED && !r.shape.lab_init) enlarge_positions(&r);
    if (r.shape.activation == PP_RELU) avoid_kinks(&r);
    runner_gradients(&r);
    for (int i = 0; i < r.model->ntensors; i++) {
        const double error = tensor_error(&r, i);
        if (!(error <= 4e-3)) fail_msg("%s: relative error %g of the gradient", r.model->tensors[i].name, error);
    }
    runner_close(&r);
}

static void test_gradients(void **state)
{
    (void)state;
    for (int attended = 0; attended < 4; attended++) /* mask, attention; both styles; dropout in every other one */
        for (int kind = 0; kind < KINDS; kind++) {
            struct pp_shape shape = of_kind(tiny, kind);
            const bool lab = attended == 1 || attended == 2;
            shape.mask = attended % 2 ? PP_MASK_CAUSAL : PP_MASK_NONE;
            if (shape.mask == PP_MASK_NONE) shape.window = 0;
            shape.attention = attended / 2 ? PP_ATTENTION_FLASH : PP_ATTENTION_MATH;
            shape.dropout = (attended + kind) % 2 ? 0.2 : 0;
            shape.residual_only = shape.lab_init = lab;
            shape.scale_embedding = !lab;
            check_gradients(make_runner(shape, 2));
        }
}

static void test_gradients_of_padded_batches(void **state)
{
    (void)state;
    struct runner r = make_runner(tiny, 2);
    r.shape.vocab_multiple = 16;
    r.split = r.batch_w = true;
    r.slot_chunks = 2;
    check_gradients(r);
}

/* The tensor of this name; -1: there is none. */
static int tensor_named(const struct runner *r, const char *name)
{
    for (int i = 0; i < r->model->ntensors; i++)
        if (strcmp(r->model->tensors[i].name, name) == 0) return i;
    return -1;
}

/* Gives `bare`, which has no biases, the other's weights, and the other biases of zero. */
static void share_weights(struct runner *biased, struct runner *bare)
{
    for (int i = 0; i < biased->model->ntensors; i++) {
        const struct pp_tensor *t = &biased->model->tensors[i];
        const int same = tensor_named(bare, t->name);
        const size_t bytes = sizeof(float) * (size_t)t->elements;
        float *w = runner_tensor(biased, biased->param, i);
        if (same < 0)
            memset(w, 0, bytes);
        else
            memcpy(runner_tensor(bare, bare->param, same), w, bytes);
    }
}

/* A model without biases, or without some, is one whose biases are zero. Its norms keep theirs. */
static void test_no_bias(void **state)
{
    (void)state;
    static const struct {
        int bias, of_layer; /* missing: of a layer, beside the decoder's */
    } kinds[] = {{PP_BIAS_LAYERS, 0}, {PP_NO_BIAS, 4}, {PP_BIAS_QKV, 3}};
    for (int way = 0; way < 2 * LATENT; way++) { /* latent attention has no biases */
        struct runner biased = make_runner(of_kind(tiny, way / 2), 2), bare;
        biased.shape.attention = way % 2 ? PP_ATTENTION_FLASH : PP_ATTENTION_MATH;
        biased.shape.bias = PP_BIAS;
        bare = biased;
        bare.shape.bias = kinds[way % 3].bias;
        bare.recompute = way % 2;
        runner_open(&biased);
        runner_open(&bare);
        assert_int_equal(biased.model->ntensors - bare.model->ntensors, kinds[way % 3].of_layer * tiny.layers + 1);
        share_weights(&biased, &bare);
        assert_true(runner_gradients(&biased) == runner_gradients(&bare));
        for (int i = 0; i < bare.model->ntensors; i++) {
            const struct pp_tensor *t = &bare.model->tensors[i];
            const float *a = runner_tensor(&bare, bare.grad, i);
            const float *b = runner_tensor(&biased, biased.grad, tensor_named(&biased, t->name));
            for (int64_t k = 0; k < t->elements; k++) assert_true(a[k] == b[k]);
        }
        runner_close(&biased);
        runner_close(&bare);
    }
}

static void check_padding_is_zero(struct runner *r, void *const *region)
{
    for (int i = r->model->ntensors - 2; i < r->model->ntensors; i++) { /* the decoder's weight and bias */
        const struct pp_tensor *t = &r->model->tensors[i];
        const float *values = runner_tensor(r, region, i);
        const int64_t padded = pp_padded_vocab(&r->shape) * t->shape[1];
        for (int64_t k = t->elements; k < padded; k++) assert_true(values[k] == 0);
    }
}

/* A padded vocabulary changes no result and stays zero; norm and step see the words only. */
static void check_padding(int vocab, int multiple, bool split)
{
    struct pp_shape shape = tiny;
    shape.vocab = vocab;
    struct runner plain = make_runner(shape, 2), padded;
    shape.vocab_multiple = multiple;
    padded = make_runner(shape, 2);
    padded.split = split;
    compare_runs(plain, padded, 1e-6f);
    runner_open(&padded);
    assert_int_equal(pp_padded_vocab(&padded.shape) % multiple, 0);
    struct pp_frame frame = padded.frame;
    double sums[64];
    frame.sums = sums;
    frame.learning_rate = 0.1f;
    for (int step = 0; step < 2; step++) {
        runner_gradients(&padded);
        check_padding_is_zero(&padded, padded.grad);
        runner_task(&padded, PP_NORM, 1, 0, &frame);
        runner_task(&padded, PP_STEP, 1, 0, &frame);
        check_padding_is_zero(&padded, padded.param);
    }
    runner_close(&padded);
}

static void test_padded_vocabulary(void **state)
{
    (void)state;
    const int vocab[] = {2, 17, 64, 100, 301};
    for (int i = 0; i < 5; i++)
        for (int multiple = 8; multiple <= 128; multiple *= 4) check_padding(vocab[i], multiple, i % 2);
}

/* Dropout is keyed by the element in the whole batch: other microbatches give the same masks, sums differ by rounding
 * only. */
static void test_chunks_same_masks(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct runner whole = make_runner(of_kind(tiny, kind), 1), cut = make_runner(whole.shape, 2);
        whole.chunks = 1;
        cut.chunks = 2 + kind % 4;
        compare_runs(whole, cut, 2e-5f);
    }
}

static void test_vector_widths_agree(void **state)
{
    (void)state;
    const struct pp_cpu_isa *isa;
    for (int i = 0; (isa = pp_cpu_isa_at(i)); i++) {
        if (!isa->supported()) continue;
        for (int kind = 0; kind < ALL_KINDS; kind++) {
            struct runner other = make_runner(of_kind(tiny, kind), 2);
            other.isa = isa;
            compare_runs(make_runner(of_kind(tiny, kind), 2), other, 2e-5f);
        }
    }
}

static void test_evaluation_without_dropout(void **state)
{
    (void)state;
    struct pp_shape plain = tiny;
    plain.dropout = 0;
    plain.layers = 3;
    struct runner trained = make_runner(plain, 1), evaluated = make_runner(plain, 1);
    evaluated.shape.dropout = 0.2;
    evaluated.evaluate = true;
    runner_open(&trained);
    runner_open(&evaluated);
    assert_true(runner_loss(&trained) == runner_loss(&evaluated));
    assert_true(pp_model_act_bytes(evaluated.model, 0, &(struct pp_program_spec){7, 3, false, false}) <
                pp_model_act_bytes(evaluated.model, 0, &(struct pp_program_spec){7, 3, true, false}));
    runner_close(&trained);
    runner_close(&evaluated);
}

/* Norm and step over a stage: sums of squares, and w - lr * factor * g. */
static void test_update(void **state)
{
    (void)state;
    struct runner r = make_runner(tiny, 1);
    runner_open(&r);
    const double before = runner_gradients(&r);
    double sums[64] = {0};
    struct pp_frame frame = r.frame;
    frame.sums = sums;
    runner_task(&r, PP_NORM, 0, 0, &frame);
    for (int i = 0; i < r.model->ntensors; i++) {
        const float *g = runner_tensor(&r, r.grad, i);
        double sum = 0;
        for (int64_t k = 0; k < r.model->tensors[i].elements; k++) sum += (double)g[k] * g[k];
        assert_true(fabs(sum - sums[i]) <= 1e-12 * sum);
    }
    const float w = runner_tensor(&r, r.param, 3)[5], g = runner_tensor(&r, r.grad, 3)[5];
    frame.learning_rate = 0.1f;
    frame.clip_factor = 0.5f;
    runner_task(&r, PP_STEP, 0, 0, &frame);
    assert_true(fabsf(runner_tensor(&r, r.param, 3)[5] - (w - 0.05f * g)) <= 1e-7f);
    assert_true(runner_loss(&r) < before);
    runner_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_gradients_of_padded_batches),
        cmocka_unit_test(test_no_bias),
        cmocka_unit_test(test_padded_vocabulary),
        cmocka_unit_test(test_chunks_same_masks),
        cmocka_unit_test(test_vector_widths_agree),
        cmocka_unit_test(test_evaluation_without_dropout),
        cmocka_unit_test(test_update),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
