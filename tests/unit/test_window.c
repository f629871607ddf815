/* SPDX-License-Identifier: Apache-2.0
 *
 * Sliding windows in models: which layers have one, which of their calls know it, and what programs are called.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/database/split_time.h"
#include "core/options/config.h"
#include "core/shape/layers.h"
#include "kernels/kernels.h"
#include "kernels/model.h"

enum { SEQ = 12, ROWS = 2, WINDOW = 5 };

static const struct pp_shape shape_of_all = {
    .d_model = 8, .heads = 2, .d_ff = 8, .layers = 6, .vocab = 11, .mask = PP_MASK_CAUSAL, .window = WINDOW};

/* Patterns of published models, s: sliding window, f: full attention, as the layer_types of their configurations. */
static void test_layers(void **state)
{
    (void)state;
    static const struct {
        int skip;
        const char *types;
    } models[] = {{0, "ssssss"} /* Mistral 7B */,
                  {2, "sfsfsf"} /* Gemma 2, gpt-oss */,
                  {4, "sssfsssfsssf"} /* Olmo 3 */,
                  {6, "sssssfsssssfss"} /* Gemma 3 */};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int l = 0; models[i].types[l]; l++) {
            struct pp_shape shape = shape_of_all;
            shape.window_skip = models[i].skip;
            assert_int_equal(pp_layer_window(&shape, l), models[i].types[l] == 's' ? WINDOW : 0);
            shape.window = 0;
            assert_int_equal(pp_layer_window(&shape, l), 0);
        }
}

static struct pp_model *make_model(struct pp_shape shape, int stages, const char *split)
{
    struct pp_model *model;
    const struct pp_cut cut = {.stages = stages, .split = split};
    if (pp_model_ops.create(&shape, &cut, &model) != PP_OK) fail_msg("%s", pp_message());
    return model;
}

static struct pp_program make_program(const struct pp_model *model, int kind, int stage, int seq)
{
    struct pp_program program;
    const struct pp_class cls = {kind, stage, ROWS, .adds = true};
    const struct pp_program_spec spec = {.seq = seq, .slot_rows = ROWS, .training = true};
    if (pp_model_program(model, &cls, &spec, &program) != PP_OK) fail_msg("%s", pp_message());
    return program;
}

static bool is_attention(const struct pp_call *call)
{
    return call->kernel >= PP_KERNEL_ATTENTION && call->kernel <= PP_KERNEL_FLASH_GRAD;
}

/* Layers count from the model's first one, in whichever stage they are; on the way back from the last. */
static void test_calls(void **state)
{
    (void)state;
    for (int turn = 0; turn < 8; turn++) {
        const int kind = turn % 2 ? PP_B : PP_F;
        struct pp_shape shape = shape_of_all;
        shape.attention = turn / 2 % 2 ? PP_ATTENTION_FLASH : PP_ATTENTION_MATH;
        shape.positions = PP_POSITIONS_ROPE;
        shape.rope_theta = 100;
        shape.window_skip = 3;
        shape.context = turn / 4 ? 2 : 1;
        struct pp_model *model = make_model(shape, 2, "2,4");
        for (int stage = 0, layer = 0; stage < 2; stage++) {
            struct pp_program program = make_program(model, kind, stage, SEQ);
            const int layers = model->stages[stage].layers;
            int found = 0;
            for (int i = 0; i < program.ncalls; i++) {
                const struct pp_call *call = &program.calls[i];
                if (call->kernel == PP_KERNEL_ROPE) assert_int_equal(call->attention.window, 0);
                if (!is_attention(call)) continue;
                const int l = layer + (kind == PP_B ? layers - 1 - found : found);
                assert_int_equal(call->attention.window, (l + 1) % 3 ? WINDOW : 0);
                found++;
            }
            assert_int_equal(found, layers);
            layer += layers;
            pp_program_free(&program);
        }
        pp_model_free(model);
    }
}

/* A window that hides nothing is none: the names are those of models without. */
static void test_wide_windows(void **state)
{
    (void)state;
    struct pp_shape plain = shape_of_all;
    plain.window = 0;
    struct pp_model *windowed = make_model(shape_of_all, 1, NULL), *model = make_model(plain, 1, NULL);
    for (int seq = WINDOW - 1; seq <= WINDOW + 1; seq++) {
        struct pp_program one = make_program(windowed, PP_F, 0, seq), other = make_program(model, PP_F, 0, seq);
        assert_int_equal(strcmp(one.signature, other.signature) == 0, seq <= WINDOW);
        for (int i = 0; i < one.ncalls; i++)
            if (is_attention(&one.calls[i])) assert_int_equal(one.calls[i].attention.window, seq > WINDOW ? WINDOW : 0);
        pp_program_free(&one);
        pp_program_free(&other);
    }
    pp_model_free(windowed);
    pp_model_free(model);
}

static void check_signature(int skip, const char *split, int stage, const char *expected)
{
    struct pp_shape shape = shape_of_all;
    shape.layers = 12;
    shape.window_skip = skip;
    struct pp_model *model = make_model(shape, 2, split);
    struct pp_program program = make_program(model, PP_B, stage, SEQ);
    assert_string_equal(program.signature, expected);
    pp_program_free(&program);
    pp_model_free(model);
}

static void test_signatures(void **state)
{
    (void)state;
    check_signature(0, "5,7", 0, "B 5l+emb d8 h2 ff8 v11 causal window5 seq12 rows2");
    check_signature(6, "5,7", 0, "B 5l+emb d8 h2 ff8 v11 causal window5 seq12 rows2");
    check_signature(6, "5,7", 1, "B 7l+dec d8 h2 ff8 v11 causal window5 full1/6 seq12 rows2");
    check_signature(6, "6,6", 1, "B 6l+dec d8 h2 ff8 v11 causal window5 full6 seq12 rows2");
    check_signature(2, "7,5", 0, "B 7l+emb d8 h2 ff8 v11 causal window5 full2/2 seq12 rows2");
    check_signature(12, "11,1", 1, "B 1l+dec d8 h2 ff8 v11 causal seq12 rows2");
}

enum { LAYERS = 9 };

static int windows_of(const struct pp_model *model, int stage, int out[LAYERS], char *name, size_t size)
{
    struct pp_program program = make_program(model, PP_F, stage, SEQ);
    int n = 0;
    for (int i = 0; i < program.ncalls; i++)
        if (is_attention(&program.calls[i])) out[n++] = program.calls[i].attention.window;
    snprintf(name, size, "%s", program.signature);
    pp_program_free(&program);
    return n;
}

/* Of the middle one of three stages, wherever it begins and ends: names are equal where windows are. */
static void test_names_and_windows(void **state)
{
    (void)state;
    enum { MOST = 400 };
    static struct {
        int n, windows[LAYERS];
        char name[PP_SIGNATURE_BYTES];
    } of[MOST];
    int n = 0;
    for (int skip = 0; skip <= LAYERS; skip++)
        for (int first = 1; skip != 1 && first < LAYERS - 1; first++)
            for (int end = first + 1; end < LAYERS; end++, n++) {
                struct pp_shape shape = shape_of_all;
                char split[32];
                shape.layers = LAYERS;
                shape.window_skip = skip;
                snprintf(split, sizeof split, "%d,%d,%d", first, end - first, LAYERS - end);
                struct pp_model *model = make_model(shape, 3, split);
                assert_true(n < MOST);
                of[n].n = windows_of(model, 1, of[n].windows, of[n].name, sizeof of[n].name);
                pp_model_free(model);
            }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) {
            const bool same = of[i].n == of[j].n && !memcmp(of[i].windows, of[j].windows, sizeof of[i].windows);
            if (same != (strcmp(of[i].name, of[j].name) == 0))
                fail_msg("%s and %s: equal windows: %d", of[i].name, of[j].name, same);
        }
    assert_true(n > 200);
}

static void test_refused(void **state)
{
    (void)state;
    struct pp_shape shape = shape_of_all;
    assert_int_equal(pp_shape_check(&shape), PP_OK);
    shape.mask = PP_MASK_NONE;
    assert_int_equal(pp_shape_check(&shape), PP_USAGE);
    shape.window = 0;
    assert_int_equal(pp_shape_check(&shape), PP_OK);
    shape.mask = PP_MASK_CAUSAL;
    shape.window = -1;
    assert_int_equal(pp_shape_check(&shape), PP_USAGE);
}

/* Attention takes as long as a query sees keys, and nothing else takes time. */
static pp_status seen_ns(void *from, const struct pp_call *call, double *out)
{
    (void)from;
    *out = is_attention(call) ? PP_SEEN_KEYS(&call->attention) : 0;
    return PP_OK;
}

/* --split time weighs layers with and without a window by their own times. */
static void test_split_time(void **state)
{
    (void)state;
    static const char *const options[] = {
        "ppsim",    "--preset", "lab",           "--mask", "causal",  "--layers", "6",
        "--tokens", "12",       "--window-size", "5",      "--split", "time",     "--window-attn-skip-freq",
        "3"};
    enum { OPTIONS = sizeof options / sizeof *options };
    const struct pp_call_times times = {seen_ns, NULL};
    const struct pp_point point = {.ranks = 2, .virtual_stages = 1, .chunks = 2};
    for (int skips = 0; skips < 2; skips++) {
        static struct pp_config config;
        char *argv[OPTIONS];
        for (int i = 0; i < OPTIONS; i++) argv[i] = strdup(options[i]);
        assert_int_equal(pp_config_parse(PP_PPSIM, skips ? OPTIONS : OPTIONS - 2, argv, &config, NULL),
                         PP_OK);
        double *ns;
        if (pp_split_time_by(&config, &config, &point, &pp_model_ops, &times, &ns) != PP_OK)
            fail_msg("%s", pp_message());
        for (int l = 0; l < 6; l++) assert_true(ns[1 + l] == 2 * (skips && l % 3 == 2 ? 12 : 5));
        assert_true(ns[0] == 0 && ns[7] == 0);
        free(ns);
        for (int i = 0; i < OPTIONS; i++) free(argv[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layers),
                                       cmocka_unit_test(test_calls),
                                       cmocka_unit_test(test_wide_windows),
                                       cmocka_unit_test(test_signatures),
                                       cmocka_unit_test(test_names_and_windows),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_split_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
