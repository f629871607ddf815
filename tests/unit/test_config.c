/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "core/options/devices.h"
#include "core/plan/movers.h"
#include "tests/unit/config_case.h"

static void small_is_the_default(void **state)
{
    (void)state;
    struct pp_config c;
    assert_int_equal(parse(PP_PPEXEC, "", &c), PP_OK);
    assert_string_equal(c.preset, "small");
    assert_int_equal(c.model.d_model, 200);
    assert_int_equal(c.model.mask, PP_MASK_CAUSAL);
    assert_int_equal(c.model.attention, PP_ATTENTION_MATH);
    assert_int_equal(c.stages.v[0], 2);
    assert_int_equal(c.chunks.v[0], 4);
    assert_string_equal(c.schedule.v[0], "gpipe");
    assert_int_equal(c.checkpoint.v[0], PP_CHECKPOINT_NEVER);
    assert_null(c.data);
    assert_int_equal(c.warmup, -1);
    assert_int_equal(c.recv_buffers, -1);
    assert_int_equal(c.eval_rows, 10);
}

static void an_option_beats_the_preset_wherever_it_stands(void **state)
{
    (void)state;
    struct pp_config c;
    assert_int_equal(parse(PP_PPEXEC, "--layers 3 --preset tutorial-12 --chunks 2,4", &c), PP_OK);
    assert_int_equal(c.model.layers, 3);
    assert_int_equal(c.tokens, 25);
    assert_int_equal(c.checkpoint.v[0], PP_CHECKPOINT_EXCEPT_LAST);
    assert_int_equal(c.chunks.n, 2);
    assert_true(pp_config_given(&c, model.layers));
    assert_true(pp_config_given(&c, chunks));
    assert_false(pp_config_given(&c, tokens));
}

static void adamw_has_a_learning_rate_of_its_own(void **state)
{
    (void)state;
    struct pp_config c;
    assert_int_equal(parse(PP_PPEXEC, "--preset tutorial --optimizer adamw", &c), PP_OK);
    assert_true(c.lr == 1e-3 && c.lr_decay == 0.95 && c.adamw.beta2 == 0.999);
    assert_int_equal(parse(PP_PPEXEC, "--optimizer adamw --lr 0.01 --adam-beta2 0.95", &c), PP_OK);
    assert_true(c.lr == 0.01 && c.adamw.beta2 == 0.95);
    assert_int_equal(parse(PP_PPEXEC, "--preset gpt-small", &c), PP_OK); /* its preset's */
    assert_true(c.lr == 6e-4 && c.model.optimizer == PP_ADAMW && c.adamw.beta2 == 0.95);
    assert_int_equal(parse(PP_PPEXEC, "--preset gpt-6.7b --optimizer adamw", &c), PP_OK);
    assert_true(c.lr == 1.2e-4);
    assert_int_equal(parse(PP_PPEXEC, "--optimizer sgd", &c), PP_OK);
    assert_true(c.lr == 5);
}

static void the_rate_may_fall_from_the_preset_s(void **state)
{
    (void)state;
    struct pp_config c;
    assert_int_equal(parse(PP_PPEXEC, "", &c), PP_OK);
    assert_true(c.over_steps.schedule == PP_LR_CONSTANT && c.over_steps.warmup_steps == 0);
    assert_int_equal(parse(PP_PPEXEC, "--min-lr 5 --lr-steps 3 --warmup-steps 2 --lr-schedule linear", &c), PP_OK);
    assert_true(c.over_steps.schedule == PP_LR_LINEAR && c.over_steps.steps == 3 && c.over_steps.warmup_steps == 2);
    assert_true(c.lr == 5 && c.over_steps.least == 5);
    assert_int_equal(parse(PP_PPEXEC, "--warmup-steps 2000", &c), PP_OK);
}

/* Those that are published models, and no others. */
static void presets_of_published_models_have_their_initial_weights(void **state)
{
    (void)state;
    char names[] = PP_PRESET_NAMES, line[sizeof names + 16];
    for (char *name = names, *end; name; name = end) {
        struct pp_config c;
        struct pp_shape shape;
        end = strchr(name, '|');
        if (end) *end++ = '\0';
        snprintf(line, sizeof line, "--preset %s", name);
        assert_int_equal(parse(PP_PPEXEC, line, &c), PP_OK);
        pp_config_shape(&c, &shape);
        static const char *const families[] = {"gpt", "llama", "mistral", "mixtral", "qwen", "glm", "deepseek"};
        double deviation = 0;
        for (size_t i = 0; i < sizeof families / sizeof *families; i++)
            if (strncmp(name, families[i], strlen(families[i])) == 0) deviation = *name == 'd' ? 0.006 : 0.02;
        if (shape.init_std != deviation) fail_msg("%s: %g", name, shape.init_std);
    }
    struct pp_config c;
    assert_int_equal(parse(PP_PPEXEC, "--preset gpt-small --init-std 0", &c), PP_OK);
    assert_true(c.model.init_std == 0);
}

/* Numbers of the tutorials: 2 of d*V in embedding and decoder, and the layers. */
static int64_t parameters(const struct pp_config *c)
{
    int64_t d = c->model.d_model, ff = c->model.d_ff;
    int64_t layer = 4 * d * d + 4 * d + 2 * d * ff + ff + d + 4 * d;
    int64_t ends = (c->model.tied ? 1 : 2) * d * c->model.vocab + (c->model.bias == PP_BIAS ? c->model.vocab : 0);
    if (c->model.positions == PP_POSITIONS_LEARNED) ends += d * pp_config_max_positions(c);
    return ends + c->model.layers * layer + (c->model.norm == PP_NORM_FIRST ? 2 * d : 0);
}

static void presets_have_the_published_numbers_of_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int64_t parameters;
        int replicas, rows, tokens;
    } cases[] = {{"--preset tutorial", 1041444974, 2, 20, 35},   {"--preset tutorial-12", 1444261998, 1, 20, 25},
                 {"--preset small", 12025582, 1, 20, 35},        {"--preset lab", 5068, 1, 4, 9},
                 {"--preset gpt-small", 124439808, 1, 16, 1024}, {"--preset gpt-6.7b", 6658404352, 1, 32, 2048}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pp_config c;
        assert_int_equal(parse(PP_PPSIM, cases[i].line, &c), PP_OK);
        assert_int_equal(parameters(&c), cases[i].parameters);
        assert_int_equal(c.replicas, cases[i].replicas);
        assert_int_equal(c.rows, cases[i].rows);
        assert_int_equal(c.tokens, cases[i].tokens);
    }
}

static void rows_of_a_microbatch_make_chunks(void **state)
{
    (void)state;
    struct pp_config c;
    assert_int_equal(parse(PP_PPSIM, "--rows 10 --micro-batch-size 1,4,3,20,10", &c), PP_OK);
    assert_int_equal(c.chunks.n, 4);
    const int chunks[] = {10, 3, 4, 1};
    assert_memory_equal(c.chunks.v, chunks, sizeof chunks);
    c.rows = 8;
    pp_config_cut_rows(&c);
    assert_int_equal(c.chunks.n, 4);
    assert_int_equal(c.chunks.v[1], 2);
    assert_int_equal(parse(PP_PPSIM, "--rows 10", &c), PP_OK);
    c.rows = 8;
    pp_config_cut_rows(&c);
    assert_int_equal(c.chunks.v[0], 4); /* the preset's */
}

static void the_lab_has_its_own_style_and_data(void **state)
{
    (void)state;
    struct pp_config c;
    struct pp_shape shape;
    assert_int_equal(parse(PP_PPEXEC, "--preset lab", &c), PP_OK);
    assert_string_equal(c.data, "constant");
    pp_config_shape(&c, &shape);
    assert_false(shape.scale_embedding);
    assert_true(shape.residual_only && shape.lab_init);

    assert_int_equal(parse(PP_PPEXEC, "--data generated --preset lab --style tutorial", &c), PP_OK);
    assert_null(c.data);
    pp_config_shape(&c, &shape);
    assert_true(shape.scale_embedding);
    assert_false(shape.residual_only || shape.lab_init);
}

static int columns(const char *options, const char *found)
{
    struct pp_config c;
    struct pp_shape shape;
    assert_int_equal(parse(PP_PPEXEC, options, &c), PP_OK);
    if (found) pp_config_found_device(&c, found);
    pp_config_shape(&c, &shape);
    return pp_padded_vocab(&shape);
}

static void a_gpu_pads_the_vocabulary_unless_told(void **state)
{
    (void)state;
    assert_int_equal(columns("", "cpu"), 28782);
    assert_int_equal(columns("--device cuda", NULL), 28800);
    assert_int_equal(columns("--device auto", "cuda"), 28800);
    assert_int_equal(columns("--device auto", "cpu"), 28782);
    assert_int_equal(columns("--device cuda --vocab-multiple 1", "cuda"), 28782);
    assert_int_equal(columns("--vocab-multiple 1000", "cpu"), 29000);
}

static void impossible_numbers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *line, *message;
    } cases[] = {
        {"--heads 3", "do not divide --d-model 200"},
        {"--kv-heads 3 --heads 8", "do not divide --heads 8"},
        {"--kv-heads 4", "do not divide --heads 2"},
        {"--positions rope --heads 200", "choose an even number"},
        {"--positions alibi", "rope"},
        {"--rope-theta 500000", "--rope-theta is of --positions rope"},
        {"--positions rope --rope-theta 0.5", "is below 1"},
        {"--max-positions 64", "--max-positions is of --positions learned"},
        {"--positions rope --max-positions 64", "--max-positions is of --positions learned"},
        {"--positions learned --max-positions 34", "--max-positions 34: rows of --tokens 35 have places without"},
        {"--positions learned --rope-theta 500000", "--rope-theta is of --positions rope"},
        {"--positions learnt", "did you mean learned?"},
        {"--bias layer", "did you mean layers?"},
        {"--dropout 1", "less than 1"},
        {"--dropout -0.1", "is below 0"},
        {"--rows 0", "is below 1"},
        {"--layers 0", "is below 1"},
        {"--preset tutorail", "did you mean tutorial?"},
        {"--mask causle", "did you mean causal?"},
        {"--precision fp16", "fp32|tf32|bf16"}, /* the nearest need not be what was meant */
        {"--attention flush", "did you mean flash?"},
        {"--norm first", "post"},
        {"--activation swish", "gelu"},
        {"--activation gelu_tanh", "did you mean gelu-tanh?"},
        {"--normalization rms", "rmsnorm"},
        {"--bias none", "did you mean no?"},
        {"--epochs 3", "--epochs is an option of ppexec, not of ppsim"},
        {"--memory 0", "is below 1"},
        {"--memory 80", "80 of what? Name a unit, such as 80G"},
        {"--memory 1048575", "Name a unit"},
        {"--micro-batch-size 4 --chunks 2", "leave one out"},
        {"--micro-batch-size 0", "is below 1"},
        {"--batch-w 65536", "outside 1..65535"},
        {"--experts-per-token 1", "--experts-per-token is of --experts"},
        {"--capacity-factor 2", "--capacity-factor is of --experts"},
        {"--aux-loss 0", "--aux-loss is of --experts"},
        {"--experts 4", "add --bias no"},
        {"--experts 4 --bias layers", "add --bias no"},
        {"--experts 4 --bias no --experts-per-token 5", "choose as many at most"},
        {"--experts 4 --bias no --capacity-factor 0", "choose more"},
        {"--experts 4 --bias no --batch-w 2", "no --batch-w 2 with them"},
        {"--experts 4097", "outside 0..4096"},
        {"--optimizer adam", "did you mean adamw?"},
        {"--weight-decay 0.1", "--weight-decay is of --optimizer adamw"},
        {"--optimizer adamw --adam-beta2 1", "--adam-beta2: with 1 nothing would be learnt"},
        {"--optimizer adamw --adam-beta1 -0.1", "is below 0"},
        {"--init-std -0.02", "is below 0"},
        {"--init-std nan", "is not a number"},
        {"--db :memory:", "memory, which nobody could read later, and here a file must be named"},
        {"--db file:x?mode=memory", "a URI, and here a file must be named: leave \"file:\" out"},
        {"--db file:x?mode=memory", "write ./file:x?mode=memory"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) refused(cases[i].line, cases[i].message);
}

static void degrees_divide_tokens_and_replicas_and_only_ppsim_takes_lists(void **state)
{
    (void)state;
    struct pp_config c;
    refused("--tokens 36 --context-parallel 8", "--context-parallel 8 does not divide --tokens 36");
    refused("--tokens 36 --context-parallel 4 --times 1,2", "leave --context-parallel out");
    assert_int_equal(parse(PP_PPSIM, "--tokens 36 --context-parallel 5,4,1", &c), PP_OK); /* 5 is left out later */
    assert_int_equal(c.context_parallel.n, 3);
    assert_int_equal(parse(PP_PPEXEC, "--tokens 36 --context-parallel 4,1", &c), PP_USAGE);
    assert_non_null(strstr(pp_message(), "--context-parallel: only ppsim takes a list"));
    assert_int_equal(parse(PP_PPSIM, "--preset mixtral-8x7b --replicas 4 --expert-parallel 3,2", &c), PP_OK);
    pp_config_set_expert_parallel(&c, 2);
    assert_int_equal(c.tensor.v[0], 1); /* a preset's T does not apply to expert ranks */
}

static void impossible_rates_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *line, *message;
    } cases[] = {
        {"--lr -1", "--lr: -1 is below 0"},
        {"--lr 1e308", "outside 0..3.4"},
        {"--lr-decay -1", "below 0"},
        {"--warmup-steps -1", "is below 0"},
        {"--lr-schedule cosin", "did you mean cosine?"},
        {"--lr-steps 9", "--lr-steps is of --lr-schedule cosine and linear"},
        {"--lr-schedule constant --min-lr 0", "--min-lr is of --lr-schedule cosine and linear"},
        {"--lr-schedule linear", "Add --lr-steps"},
        {"--lr-schedule cosine --lr-steps 0", "Add --lr-steps"},
        {"--lr-schedule cosine --lr-steps 9 --warmup-steps 9", "--lr-steps 9: no step is left behind --warmup-steps 9"},
        {"--lr-schedule linear --lr-steps 9 --lr 0.1 --min-lr 0.2", "--min-lr: 0.2 is above --lr 0.1"},
        {"--optimizer adamw --lr-schedule linear --lr-steps 9 --min-lr 0.01", "above --lr 0.001"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) refused(cases[i].line, cases[i].message);
}

static void help_is_answered_whatever_the_numbers(void **state)
{
    (void)state;
    static const struct pp_program_info info = {PP_PPSIM, "ppsim", "Predicts.", "", "", ""};
    struct pp_config c;
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(parse(PP_PPSIM, "--version --heads 7", &c), PP_OK);
    FILE *out = open_memstream(&text, &size);
    assert_true(pp_config_answer(&c, &info, out));
    fclose(out);
    assert_string_equal(text, "ppsim (ppkit) " PP_VERSION "\n");
    free(text);
    assert_int_equal(parse(PP_PPSIM, "", &c), PP_OK);
    assert_false(pp_config_answer(&c, &info, stdout));
}

/* A preset of that name exists, and what it sets can be set. */
static void every_preset_that_is_named_exists(void **state)
{
    (void)state;
    char names[] = PP_PRESET_NAMES;
    for (char *name = strtok(names, "|"); name; name = strtok(NULL, "|")) {
        struct pp_config c = {.preset = name};
        assert_int_equal(pp_config_apply_preset(&c), PP_OK);
        assert_true(c.model.layers > 0 && c.chunks.n == 1);
    }
}

/* A row of core/plan/movers.def and of core/options/devices.def is a choice, and no other word is. */
static void rows_of_movers_and_devices_can_be_named(void **state)
{
    (void)state;
    struct pp_config c;
    char line[64];
    for (int i = 0; i < pp_nmovers; i++) {
        snprintf(line, sizeof line, "--transport %s", pp_movers[i].name);
        assert_int_equal(parse(PP_PPEXEC, line, &c), PP_OK);
        assert_string_equal(c.transport, pp_movers[i].name);
        assert_ptr_equal(pp_mover_find(pp_movers[i].name, pp_movers[i].moves), &pp_movers[i]);
    }
    for (int i = 0; i < pp_ndevice_kinds; i++) {
        const struct pp_device_kind *kind = &pp_device_kinds[i];
        snprintf(line, sizeof line, "--device %s --straggler 0:2", kind->name);
        assert_int_equal(parse(PP_PPEXEC, line, &c), kind->waits ? PP_OK : PP_USAGE);
        assert_ptr_equal(pp_device_kind(kind->name), kind);
    }
    assert_int_equal(parse(PP_PPEXEC, "--transport pigeon", &c), PP_USAGE);
    assert_int_equal(parse(PP_PPEXEC, "--device abacus", &c), PP_USAGE);
    assert_string_equal(pp_device_kind("auto")->name, "cpu");
    assert_string_equal(pp_device_gpu()->name, "cuda");
}

static void options_have_names_fields_and_help_of_their_own(void **state)
{
    (void)state;
    for (int i = 0; i < pp_config_nrows; i++) {
        assert_true(strlen(pp_config_rows[i].help) > 0);
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(pp_config_rows[i].name, pp_config_rows[j].name);
            assert_true(pp_config_rows[i].offset != pp_config_rows[j].offset);
        }
    }
}

/* So a run is not resumed with another model, whatever option the model gets. */
static void all_options_of_model_and_batch_are_fixed(void **state)
{
    (void)state;
    const char *const others[] = {"preset", "vocab-multiple"};
    for (int i = 0; i < pp_config_nrows; i++) {
        const struct pp_opt *row = &pp_config_rows[i];
        const bool model = strncmp(row->group, "Model", 5) == 0 || strncmp(row->group, "Batch", 5) == 0;
        if (!model || strcmp(row->name, others[0]) == 0 || strcmp(row->name, others[1]) == 0) continue;
        if (!(row->traits & PP_OPT_FIXED)) fail_msg("--%s", row->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_is_the_default),
        cmocka_unit_test(an_option_beats_the_preset_wherever_it_stands),
        cmocka_unit_test(adamw_has_a_learning_rate_of_its_own),
        cmocka_unit_test(the_rate_may_fall_from_the_preset_s),
        cmocka_unit_test(presets_of_published_models_have_their_initial_weights),
        cmocka_unit_test(presets_have_the_published_numbers_of_parameters),
        cmocka_unit_test(rows_of_a_microbatch_make_chunks),
        cmocka_unit_test(all_options_of_model_and_batch_are_fixed),
        cmocka_unit_test(the_lab_has_its_own_style_and_data),
        cmocka_unit_test(a_gpu_pads_the_vocabulary_unless_told),
        cmocka_unit_test(impossible_numbers_are_refused),
        cmocka_unit_test(degrees_divide_tokens_and_replicas_and_only_ppsim_takes_lists),
        cmocka_unit_test(impossible_rates_are_refused),
        cmocka_unit_test(help_is_answered_whatever_the_numbers),
        cmocka_unit_test(every_preset_that_is_named_exists),
        cmocka_unit_test(rows_of_movers_and_devices_can_be_named),
        cmocka_unit_test(options_have_names_fields_and_help_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
