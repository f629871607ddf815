/* SPDX-License-Identifier: Apache-2.0
 *
 * Training on the backend `cuda`, all workers in one process: the same bits however the model is cut and scheduled, and
 * losses near those of the cpu.
 */
#include "training.h"

#include "tests/cuda/test_filter.h"

const struct pp_backend *cuda;

void training_run(const struct pp_backend *backend, const char *options, struct outcome *out)
{
    char all[OPTIONS + 20];
    snprintf(all, sizeof all, "%s --device %s", options, backend->name);
    if (train(backend, all, NULL, out) != PP_OK) fail_msg("%s: %s", all, pp_message());
}

void training_near(const struct outcome *a, const struct outcome *b, double tolerance, const char *options)
{
    assert_int_equal(a->nlosses, b->nlosses);
    for (int i = 0; i < a->nlosses; i++)
        if (!(fabs(a->losses[i] - b->losses[i]) <= tolerance * a->losses[i]))
            fail_msg("%s: loss %d is %.9g, not near %.9g", options, i, b->losses[i], a->losses[i]);
}

/* Workers that share a GPU: products choose their algorithm for the share, so bits are equal for equal shares only. */
static int sharers(int workers)
{
    const struct pp_device_spec spec = {.workers = workers, .on_host = 1};
    return cuda->sharers ? cuda->sharers(&spec) : 1;
}

void training_compare(const struct outcome *one, int workers_of_one, const struct outcome *other, int workers,
                      double tolerance, const char *options)
{
    if (sharers(workers_of_one) == sharers(workers))
        expect_equal(one, other, options);
    else
        training_near(one, other, tolerance, options);
}

static const struct {
    int stages;
    const char *options;
} cuts[] = {
    {2, "--stages 2 --schedule gpipe"},
    {2, "--stages 2 --schedule gpipe --checkpoint layers"},
    {4, "--stages 4 --schedule 1f1b --checkpoint except_last"},
    {1, "--stages 1 --schedule gpipe --checkpoint layers:1"},
    {2, "--stages 2 --schedule 1f1b --recv-buffers 1"},
    {2, "--stages 2 --virtual 2 --schedule interleaved --checkpoint always"},
};

/* The tests that compare cuts take one each, in turn, or with PP_ALL (the slow test) all. */
static int comparisons;

static bool takes(size_t cut) { return getenv("PP_ALL") || cut == (size_t)comparisons % (sizeof cuts / sizeof *cuts); }

static void same_bits(int replicas, const char *common)
{
    struct outcome here, one, other;
    char options[OPTIONS];
    snprintf(options, sizeof options, SHORT "--replicas %d %s --stages 1", replicas, common);
    training_run(&pp_backend_cpu, options, &here);
    training_run(cuda, options, &one);
    training_near(&here, &one, 1e-4, options);
    comparisons++;
    int compared = 0;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        if (!takes(i)) continue;
        if (strstr(common, "--batch-w") && strstr(cuts[i].options, "layers")) continue; /* refused */
        snprintf(options, sizeof options, SHORT "--replicas %d %s %s", replicas, common, cuts[i].options);
        training_run(cuda, options, &other);
        training_compare(&one, replicas, &other, replicas * cuts[i].stages, 1e-4, options);
        compared++;
        free(other.weights);
    }
    assert_true(compared > 0);
    free(here.weights);
    free(one.weights);
}

static void bits_do_not_depend_on_the_pipeline(void **state)
{
    (void)state;
    leave_out_where_slow();
    same_bits(1, "--chunks 2");
    same_bits(1, "--chunks 6 --no-eval"); /* evaluation has the microbatches that a schedule can take */
}

static void with_replicas_and_batched_gradients(void **state)
{
    (void)state;
    same_bits(2, "--chunks 2");
    same_bits(1, "--chunks 6 --batch-w 3 --clip 0 --no-eval --warmup-steps 2");
}

static void with_adamw(void **state)
{
    (void)state;
    leave_out_where_slow();
    same_bits(1, "--chunks 2 --optimizer adamw --adam-eps 1e-4 --lr 0.01 --lr-schedule cosine --lr-steps 3");
    same_bits(1, "--chunks 2 --optimizer adamw-bf16 --adam-eps 1e-4 --lr 0.01");
    same_bits(1, "--chunks 2 --bias no --experts 8 --expert-bias yes --expert-groups 4 --groups-per-token 2");
}

/* Workers that share a rank's tensors, or rows, round sums otherwise than one worker; all cuts of theirs alike. */
static void check_shared(const char *common, const char *option, int n)
{
    struct outcome whole, one, other;
    char options[OPTIONS];
    snprintf(options, sizeof options, SHORT "%s --stages 1", common);
    training_run(cuda, options, &whole);
    snprintf(options, sizeof options, SHORT "%s --stages 1 %s %d", common, option, n);
    training_run(cuda, options, &one);
    training_near(&whole, &one, 1e-5, options);
    comparisons++;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        if (!takes(i)) continue;
        snprintf(options, sizeof options, SHORT "%s %s %d %s", common, option, n, cuts[i].options);
        training_run(cuda, options, &other);
        training_compare(&one, n, &other, n * cuts[i].stages, 1e-5, options);
        free(other.weights);
    }
    free(whole.weights);
    free(one.weights);
}

static void check_tensor(const char *common, int tensor) { check_shared(common, "--tensor", tensor); }

/* In bfloat16 as well, where logits are wider than what they are made of. */
static void check_pieces_in_bf16(void)
{
    struct outcome whole, pieces;
    training_run(cuda, SHORT "--chunks 2 --d-ff 24 --stages 1 --tensor 2 --sequence-parallel --precision bf16", &whole);
    training_run(cuda,
                 SHORT "--chunks 2 --d-ff 24 --stages 1 --tensor 2 --sequence-parallel --precision bf16 "
                       "--overlap-tensor-sums 4",
                 &pieces);
    training_near(&whole, &pieces, 1e-3, "--precision bf16 --overlap-tensor-sums 4");
    free(whole.weights);
    free(pieces.weights);
}

static void with_workers_that_share_tensors(void **state)
{
    (void)state;
    check_pieces_in_bf16();
    check_tensor("--chunks 2 --d-ff 24", 2);
    check_tensor("--chunks 2 --d-ff 24 --sequence-parallel --norm pre --overlap-tensor-sums 3", 2);
    leave_out_where_slow();
    check_tensor("--chunks 2 --d-ff 24 --sequence-parallel --norm pre --dropout 0.2", 2);
    check_tensor("--chunks 2 --d-ff 24 --sequence-parallel --dropout 0.2 --overlap-tensor-sums 4", 2);
    check_tensor("--chunks 2 --d-ff 24 --replicas 2 --overlap-tensor-sums 2", 2);
}

#define GPT "--norm pre --activation gelu --attention flash "

#define GPT2 "--norm pre --activation gelu --positions learned --max-positions 64 --bias layers "

static void with_positions_of_gpt2(void **state)
{
    (void)state;
    leave_out_where_slow();
    same_bits(1, GPT2 "--chunks 2 --dropout 0.2");
    check_tensor(GPT2 "--chunks 2 --d-ff 24 --dropout 0.2 --sequence-parallel", 2);
}

static void with_layers_of_gpt_and_heads_of_llama(void **state)
{
    (void)state;
    leave_out_where_slow();
    same_bits(1, GPT "--chunks 2 --dropout 0.2 --kv-heads 1 --head-dim 6 --positions rope --qk-norm yes");
}

static void with_tied_embeddings(void **state)
{
    (void)state;
    same_bits(2, "--chunks 2 --dropout 0.2 --tie-embeddings yes");
    leave_out_where_slow();
    same_bits(1, "--chunks 2 --tie-embeddings yes --optimizer adamw --adam-eps 1e-4 --lr 0.01 --vocab-multiple 16");
}

static void with_parts_of_llama(void **state)
{
    (void)state;
    leave_out_where_slow();
    same_bits(1, LLAMA "--chunks 2 --dropout 0.2");
}

/* Few enough places that some choices find none; and enough, so that these do not depend on whose tokens meet. */
#define EXPERTS                                                                                                        \
    LLAMA "--experts 4 --experts-per-token 2 --capacity-factor 1 --gates all --shared-ff 20 --shared-gate yes "
#define EXPERTS_OF_ALL LLAMA "--experts 4 --experts-per-token 2 --capacity-factor 4 --aux-loss 0 "

static void with_experts(void **state)
{
    (void)state;
    leave_out_where_slow();
    same_bits(1, EXPERTS "--chunks 2 --dropout 0.2");
    same_bits(1, EXPERTS "--gates chosen --router-score sigmoid --gate-scale 2.5 --dense-layers 1 --dense-ff 36 "
                         "--chunks 2 --dropout 0.2");
    struct outcome whole, shared;
    training_run(cuda, SHORT EXPERTS "--chunks 2 --stages 1", &whole);
    training_run(cuda, SHORT EXPERTS "--chunks 2 --stages 2 --tensor 2 --sequence-parallel", &shared);
    training_near(&whole, &shared, 1e-5, "--experts 4 --tensor 2");
    free(shared.weights);
    /* gradients of gates are summed in float32 */
    training_run(cuda, SHORT EXPERTS "--chunks 2 --stages 2 --tensor 2 --precision bf16", &shared);
    training_near(&whole, &shared, 0.02, "--experts 4 --tensor 2 --precision bf16");
    free(whole.weights);
    free(shared.weights);
    /* What replicas compute that share experts, those that have all of them compute, too. */
    training_run(cuda, SHORT EXPERTS "--chunks 2 --stages 1 --replicas 4", &whole);
    training_run(cuda,
                 SHORT EXPERTS "--chunks 2 --stages 2 --replicas 4 --expert-parallel 2 --schedule zb-h1 "
                               "--overlap-expert-exchange 2",
                 &shared);
    training_near(&whole, &shared, 1e-5, "--replicas 4 --expert-parallel 2");
    free(shared.weights);
    training_run(cuda, SHORT EXPERTS "--chunks 2 --replicas 4 --expert-parallel 2 --tensor 2 --sequence-parallel",
                 &shared);
    training_near(&whole, &shared, 1e-5, "--replicas 4 --expert-parallel 2 --tensor 2");
    free(shared.weights);
    free(whole.weights);
}

/* Rows of which each worker has a part of the tokens. */
static void with_workers_that_share_rows(void **state)
{
    (void)state;
    check_shared("--tokens 8 --chunks 2 --dropout 0.2", "--context-parallel", 2);
    check_shared("--tokens 8 --chunks 2 --dropout 0.2 --attention flash --cp-comm-type all_gather",
                 "--context-parallel", 2);
    check_shared("--tokens 8 --chunks 2 --dropout 0 --attention flash --cp-comm-type p2p", "--context-parallel", 2);
    leave_out_where_slow();
    check_shared(LLAMA "--tokens 12 --heads 4 --d-ff 24 --chunks 2 --dropout 0 --tensor 2 --sequence-parallel "
                       "--attention flash --cp-comm-type p2p",
                 "--context-parallel", 3);
    check_shared(LLAMA "--tokens 12 --heads 4 --d-ff 24 --chunks 2 --dropout 0.2 --tensor 2 --sequence-parallel "
                       "--attention flash --cp-comm-type all_gather",
                 "--context-parallel", 3);
    check_shared(GPT2 "--tokens 9 --heads 6 --head-dim 4 --chunks 2 --dropout 0.2 --gpus 1", "--context-parallel", 3);
    check_shared(GPT "--tokens 8 --heads 4 --kv-heads 2 --positions rope --chunks 2 --replicas 2 --zero 1",
                 "--context-parallel", 2);
    check_shared(LLAMA "--tokens 8 --heads 4 --d-ff 24 --chunks 2 --dropout 0.2 --tensor 2 --sequence-parallel "
                       "--qk-norm yes",
                 "--context-parallel", 2);
    check_shared(EXPERTS_OF_ALL "--tokens 8 --chunks 2 --replicas 2 --expert-parallel 2", "--context-parallel", 2);
}

static void check_bfloat16(const char *model)
{
    struct outcome here, one, other;
    char options[OPTIONS];
    snprintf(options, sizeof options, SHORT "%s --chunks 2 --stages 1", model);
    training_run(&pp_backend_cpu, options, &here);
    snprintf(options, sizeof options, SHORT "%s --chunks 2 --precision bf16 --stages 1", model);
    training_run(cuda, options, &one);
    snprintf(options, sizeof options, SHORT "%s --chunks 2 --precision bf16 --stages 4 --schedule 1f1b", model);
    training_run(cuda, options, &other);
    training_near(&here, &one, 0.02, "--precision bf16");
    training_compare(&one, 1, &other, 4, 0.02, "--precision bf16");
    free(here.weights);
    free(one.weights);
    free(other.weights);
}

static void in_bfloat16(void **state)
{
    (void)state;
    leave_out_where_slow();
    check_bfloat16("");
    check_bfloat16(LLAMA "--attention flash");
    check_bfloat16(GPT2);
    check_bfloat16(EXPERTS);
    check_bfloat16("--tokens 8 --context-parallel 2 --attention flash");
}

#define LATENT LLAMA "--positions rope --kv-lora-rank 10 --qk-nope-head-dim 12 --qk-rope-head-dim 4 --v-head-dim 16 "

static void with_latent_attention(void **state)
{
    (void)state;
    leave_out_where_slow();
    same_bits(1, LATENT "--chunks 2 --dropout 0.2 --q-lora-rank 12");
    check_tensor(LATENT "--chunks 2 --d-ff 24 --dropout 0.2 --sequence-parallel", 2);
    check_shared(LATENT "--tokens 8 --chunks 2 --attention flash --cp-comm-type all_gather", "--context-parallel", 2);
    check_bfloat16(LATENT "--attention flash --q-lora-rank 12");
}

/* Weights that a run begins with are those at its end if it learns nothing. The same where they come from its file:
 * losses of bf16 depend on the copies of the weights, too. */
static void check_begins(const char *options)
{
    struct outcome here, drawn, read;
    char all[OPTIONS];
    snprintf(all, sizeof all, SHORT "--lr 0 %s --precision fp32", options);
    training_run(&pp_backend_cpu, all, &here);
    snprintf(all, sizeof all, SHORT "--lr 0 %s", options);
    training_run(cuda, all, &drawn);
    assert_int_equal(rename("out.safetensors", "begun.safetensors"), 0);
    assert_int_equal(here.parameters, drawn.parameters);
    if (memcmp(here.weights, drawn.weights, (size_t)here.parameters * sizeof(float)))
        fail_msg("%s: other initial weights than the cpu's", options);
    snprintf(all, sizeof all, SHORT "--lr 0 %s --init begun.safetensors", options);
    training_run(cuda, all, &read);
    expect_equal(&drawn, &read, all);
    free(here.weights);
    free(drawn.weights);
    free(read.weights);
}

static void from_weights_of_the_device(void **state)
{
    (void)state;
    check_begins("--chunks 2 --stages 2");
    check_begins("--chunks 2 --stages 2 --precision bf16 --init-std 0.02");
    leave_out_where_slow();
    check_begins("--chunks 2 --stages 1 --tie-embeddings yes --vocab-multiple 16");
    check_begins("--chunks 2 --stages 2 --tensor 2 --d-ff 24 --vocab 31 --precision bf16");
    check_begins("--chunks 2 --stages 1 --replicas 4 --zero 3 --precision bf16 --activation swiglu");
    check_begins("--chunks 2 --stages 2 --replicas 2 --zero 1 --precision bf16");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_the_pipeline),
        cmocka_unit_test(with_replicas_and_batched_gradients),
        cmocka_unit_test(with_adamw),
        cmocka_unit_test(with_workers_that_share_tensors),
        cmocka_unit_test(with_positions_of_gpt2),
        cmocka_unit_test(with_layers_of_gpt_and_heads_of_llama),
        cmocka_unit_test(with_tied_embeddings),
        cmocka_unit_test(with_parts_of_llama),
        cmocka_unit_test(with_experts),
        cmocka_unit_test(with_workers_that_share_rows),
        cmocka_unit_test(in_bfloat16),
        cmocka_unit_test(training_in_fp8),
        cmocka_unit_test(with_latent_attention),
        cmocka_unit_test(from_weights_of_the_device),
    };
    pp_log_init("test_training", true);
    if (argc > 1 && !filter_tests(argv[1], tests, sizeof tests / sizeof *tests)) return 2;
    if (pp_backend_find("cuda", &cuda) == PP_OK && (!cuda->available || cuda->available() == PP_OK))
        return cmocka_run_group_tests(tests, NULL, NULL);
    print_message("skipped: %s\n", pp_message());
    return 77;
}
