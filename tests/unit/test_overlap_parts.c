/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of a stage: how many there are, which tensors and calls each has, what it moves. Together they are the whole.
 */
#include "core/model/layout.h"
#include "exec/shares.h"
#include "kernels/kernels.h"
#include "tests/unit/cost_case.h"

#define MODEL                                                                                                          \
    "--d-model 16 --heads 4 --d-ff 24 --layers 7 --vocab 33 --rows 4 --chunks 2 --tokens 5 --dropout 0.2 "             \
    "--replicas 2 --optimizer adamw --overlap-grad-reduce --bucket-size 1B --stages 2 "

static const char *const models[] = {MODEL,
                                     MODEL "--zero 1 --overlap-param-gather",
                                     MODEL "--zero 1 --overlap-param-gather --positions learned --bias layers",
                                     MODEL "--zero 1 --overlap-param-gather --precision bf16 --schedule zb-h1",
                                     MODEL "--zero 1 --norm pre --activation swiglu --bias no --normalization rmsnorm",
                                     MODEL "--tensor 2 --norm pre --checkpoint layers",
                                     MODEL "--tensor 2 --sequence-parallel --zero 1 --norm pre --overlap-param-gather"};

/* --- tensors --- */

static void check_tensors(const struct pp_model *model, int stage, int kind, int parts)
{
    const struct pp_stage *s = &model->stages[stage];
    int in[256] = {0};
    int64_t bytes = 0, lowest = INT64_MAX;
    assert_true(s->tensors <= 256);
    for (int i = 0; i < parts; i++) {
        const struct pp_class cls = {kind, stage, 0, i, parts};
        const struct pp_tensor_range range = pp_part_tensors(s, &cls);
        const struct pp_extent extent = pp_part_gradients(model, &cls);
        assert_true(range.n > 0);
        for (int k = range.first; k < range.first + range.n; k++) {
            const int64_t offset = model->tensors[s->first_tensor + k].offset;
            in[k]++;
            assert_true(offset >= extent.offset && offset < extent.offset + extent.bytes);
        }
        if (i > 0 && pp_goes_back(kind)) assert_int_equal(extent.offset + extent.bytes, lowest);
        lowest = extent.offset;
        bytes += extent.bytes;
    }
    for (int k = 0; k < s->tensors; k++) assert_int_equal(in[k], 1);
    assert_int_equal(bytes, s->param_bytes);
}

/* Layer by layer, with what belongs to the first and the last: a norm, the decoder. */
static void test_tensors(void **state)
{
    (void)state;
    static const int kinds[] = {PP_B, PP_W, PP_REDUCE_GRAD, PP_F, PP_GATHER_PARAM};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct pp_job *job = create_job(models[m]);
        for (int stage = 0; stage < 2; stage++)
            for (int kind = 0; kind < 5; kind++)
                for (int parts = 1; parts <= job->model->stages[stage].layers; parts++)
                    check_tensors(job->model, stage, kinds[kind], parts);
        pp_job_free(job);
    }
}

/* --- shares --- */

static bool has(const struct pp_shares *shares, const struct pp_share_tensor *tensor)
{
    for (int i = 0; i < shares->n; i++)
        if (shares->tensors[i].offset == tensor->offset && shares->tensors[i].part_bytes == tensor->part_bytes)
            return true;
    return false;
}

/* Those of the parts together are those of the whole, each once. */
static void check_shares(const struct pp_job *job, int stage, int kind)
{
    const int parts = job->model->stages[stage].layers;
    struct pp_shares *whole, *part;
    int tensors = 0;
    int64_t bytes = 0;
    assert_int_equal(pp_shares_create(job, &(struct pp_class){.kind = kind, .stage = stage}, PP_DENSE, 0, &whole),
                     PP_OK);
    for (int i = 0; i < parts; i++) {
        const struct pp_class cls = {kind, stage, 0, i, parts};
        assert_int_equal(pp_shares_create(job, &cls, PP_DENSE, 0, &part), PP_OK);
        assert_int_equal(part->use, whole->use);
        for (int k = 0; k < part->n; k++) assert_true(has(whole, &part->tensors[k]));
        tensors += part->n;
        bytes += part->bytes;
        free(part);
    }
    assert_int_equal(tensors, whole->n);
    assert_int_equal(bytes, whole->bytes);
    free(whole);
}

static void test_shares(void **state)
{
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct pp_job *job = create_job(models[m]);
        for (int stage = 0; stage < 2 && job->train->zero; stage++) {
            check_shares(job, stage, PP_REDUCE_GRAD);
            check_shares(job, stage, PP_GATHER_PARAM);
        }
        pp_job_free(job);
    }
}

/* --- calls --- */

/* Scratch may lie elsewhere: it is tests/unit/test_programs.c that looks after it. */
static void compare_calls(const struct pp_call *a, const struct pp_call *b)
{
    assert_true(a->kernel == b->kernel && a->site == b->site && a->precision == b->precision);
    assert_memory_equal(a->n, b->n, sizeof a->n);
    assert_true(a->p == b->p);
    assert_memory_equal(&a->turns, &b->turns, sizeof a->turns); /* the largest of the scalars' union */
    for (int i = 0; i < PP_CALL_REFS; i++) {
        assert_int_equal(a->ref[i].region, b->ref[i].region);
        assert_true(a->ref[i].region == PP_MEM_WORK || a->ref[i].offset == b->ref[i].offset);
        assert_true(a->ref[i].row_bytes == b->ref[i].row_bytes && a->ref[i].part_bytes == b->ref[i].part_bytes);
    }
}

static void check_calls(const struct pp_job *job, int stage, int kind, int parts)
{
    const struct pp_program_spec spec = {5, 2, true, kind == PP_W, job->point.checkpoint == PP_CHECKPOINT_LAYERS};
    struct pp_program whole, part;
    int n = 0;
    double flops = 0;
    assert_int_equal(pp_model_program(job->model, &(struct pp_class){kind, stage, 2}, &spec, &whole), PP_OK);
    for (int i = 0; i < parts; i++) {
        assert_int_equal(pp_model_program(job->model, &(struct pp_class){kind, stage, 2, i, parts}, &spec, &part),
                         PP_OK);
        assert_true(n + part.ncalls <= whole.ncalls);
        assert_true(part.work_bytes <= whole.work_bytes);
        for (int k = 0; k < part.ncalls; k++) compare_calls(&whole.calls[n + k], &part.calls[k]);
        n += part.ncalls;
        flops += part.flops;
        pp_program_free(&part);
    }
    assert_int_equal(n, whole.ncalls);
    expect_near(flops, whole.flops, 1e-9 * whole.flops, "flops");
    pp_program_free(&whole);
}

static void test_calls(void **state)
{
    (void)state;
    static const int kinds[] = {PP_F, PP_B, PP_W};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct pp_job *job = create_job(models[m]);
        for (int stage = 0; stage < 2; stage++)
            for (int kind = 0; kind < 3; kind++)
                for (int parts = 2; parts <= job->model->stages[stage].layers; parts++)
                    check_calls(job, stage, kinds[kind], parts);
        pp_job_free(job);
    }
}

/* --- how many there are, and what they move --- */

static int parts_of(const char *options, int stage)
{
    struct pp_job *job = create_job(options);
    int parts = 0;
    for (int c = 0; c < job->train->nclasses; c++) {
        const struct pp_class *cls = &job->train->classes[c];
        if (cls->kind == PP_REDUCE_GRAD && cls->stage == stage) parts++;
    }
    pp_job_free(job);
    return parts;
}

static long long layer_bytes(const char *options)
{
    struct pp_job *job = create_job(options);
    const struct pp_stage *stage = &job->model->stages[0];
    const struct pp_tensor *first = &job->model->tensors[stage->first_tensor + stage->layer_at[0]];
    const long long bytes = first[stage->layer_at[1] - stage->layer_at[0]].offset - first->offset;
    pp_job_free(job);
    return bytes;
}

/* Each with as many layers as have so many bytes, whatever the embedding has (stage 0 has four layers, stage 1 three);
 * one where nothing was asked, or nothing is summed. */
static void test_buckets(void **state)
{
    (void)state;
    const long long bytes = layer_bytes(MODEL);
    for (int n = 1; n <= 5; n++)
        for (int more = -1; more < 2; more++) {
            char options[500];
            snprintf(options, sizeof options, MODEL "--bucket-size %lldB", bytes * n + more);
            const int layers = n + (more > 0);
            assert_int_equal(parts_of(options, 0), layers > 4 ? 1 : 4 / layers);
            assert_int_equal(parts_of(options, 1), layers > 3 ? 1 : 3 / layers);
        }
    assert_int_equal(parts_of(MODEL, 0), 4);
    for (int zero = 0; zero < 2; zero++) { /* the gradients' bytes, not those of weights that are whole */
        char options[500];
        snprintf(options, sizeof options, MODEL "--precision bf16 --zero %d --bucket-size %lldB", zero, bytes);
        assert_int_equal(parts_of(options, 1), 3);
    }
    assert_int_equal(parts_of(MODEL "--replicas 1", 0), 0);
    assert_int_equal(parts_of("--preset lab --layers 4 --replicas 2", 0), 1);
    assert_int_equal(parts_of("--preset lab --layers 4 --replicas 2 --overlap-grad-reduce", 0), 1); /* 25 MiB */
}

/* In whatever order gradients are added: the key is that of whole tasks. */
static void test_key(void **state)
{
    (void)state;
    static const char *const sizes[] = {"1G", "1B"};
    char key[2][sizeof((struct pp_job *)0)->accumulation_key];
    FILE *out = fopen("./overlap_parts.csv", "w");
    assert_non_null(out);
    fputs("0F0,0F1,0F2,0B2,0B0,0B1\n", out);
    fclose(out);
    for (int i = 0; i < 2; i++) {
        char options[500];
        snprintf(options, sizeof options,
                 MODEL "--schedule ./overlap_parts.csv --stages 1 --rows 6 --chunks 3 --bucket-size %s", sizes[i]);
        struct pp_job *job = create_job(options);
        strcpy(key[i], job->accumulation_key);
        pp_job_free(job);
    }
    assert_non_null(strstr(key[0], " order "));
    assert_string_equal(key[0], key[1]);
    remove("./overlap_parts.csv");
}

/* In parts as many bytes as as a whole. */
static void test_bytes(void **state)
{
    (void)state;
    static const char *const shapes[] = {"", "--zero 1 ", "--zero 1 --precision bf16 "};
    for (int i = 0; i < 3; i++) {
        int64_t moved[2][2][2] = {{{0}}};
        for (int parts = 0; parts < 2; parts++) {
            char options[500];
            struct pp_machine machine;
            struct pp_cost *cost;
            snprintf(options, sizeof options, MODEL "%s%s", shapes[i],
                     !parts ? "--bucket-size 1G "
                     : i    ? "--overlap-param-gather"
                            : "");
            struct pp_job *job = create_job(options);
            assert_int_equal(pp_machine_find("a100", &machine), PP_OK);
            assert_int_equal(pp_cost_from_machine(job, &machine, &cost), PP_OK);
            for (int c = 0; c < cost->nclasses; c++) {
                const struct pp_class *cls = &job->train->classes[c];
                if (!pp_combines(cls->kind)) continue;
                moved[parts][cls->kind == PP_GATHER_PARAM][cls->stage] += cost->classes[c].bytes;
                assert_int_equal(cls->parts, parts ? job->model->stages[cls->stage].layers : 0);
            }
            for (int s = 0; s < 2; s++) {
                const struct pp_stage *stage = &job->model->stages[s];
                assert_int_equal(moved[parts][0][s], stage->param_bytes);
                if (i) assert_int_equal(moved[parts][1][s], stage->value_bytes + stage->param16_bytes);
            }
            pp_cost_free(cost);
            pp_job_free(job);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tensors), cmocka_unit_test(test_shares),
                                       cmocka_unit_test(test_calls),   cmocka_unit_test(test_buckets),
                                       cmocka_unit_test(test_bytes),   cmocka_unit_test(test_key)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
