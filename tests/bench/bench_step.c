/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_step [small|wide|lab] [steps]: one training step of a whole model on one thread, kernel by kernel, and beside
 * it, in turns, each of its matrix products alone, again and again: the rate of the BLAS itself. Prints the step and
 * its products against that rate, and of each kernel time, share, Gflop/s and GB/s. Each call counts with the best of
 * all steps, so that what else runs on the machine weighs little; `step` is the best whole one. Not a test: it judges
 * nothing.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "kernels/backend.h"
#include "kernels/kernels.h"
#include "kernels/model.h"

struct preset {
    const char *name;
    struct pp_shape shape;
    int rows, seq, chunks;
};

static const struct preset presets[] = {
    {.name = "small",
     .shape = {.d_model = 200,
               .heads = 2,
               .d_ff = 200,
               .layers = 2,
               .vocab = 28782,
               .mask = PP_MASK_CAUSAL,
               .dropout = 0.2,
               .scale_embedding = true},
     .rows = 20,
     .seq = 35,
     .chunks = 4},
    {.name = "wide",
     .shape = {.d_model = 512,
               .heads = 8,
               .d_ff = 2048,
               .layers = 8,
               .vocab = 2000,
               .mask = PP_MASK_CAUSAL,
               .dropout = 0.2,
               .scale_embedding = true},
     .rows = 16,
     .seq = 64,
     .chunks = 4},
    {.name = "lab",
     .shape = {.d_model = 12,
               .heads = 4,
               .d_ff = 24,
               .layers = 2,
               .vocab = 100,
               .dropout = 0.1,
               .residual_only = true,
               .lab_init = true},
     .rows = 4,
     .seq = 9,
     .chunks = 2},
};

enum { PRESETS = sizeof presets / sizeof presets[0], KINDS = 4, MAX_CALLS = 512, MAX_CHUNKS = 32, ALONE = 5 };

/* In the order of a step. */
static const int kinds[KINDS] = {PP_F, PP_B, PP_NORM, PP_STEP};

struct bench {
    const struct preset *preset;
    const struct pp_backend *backend;
    struct pp_device *device;
    struct pp_model *model;
    struct pp_program program[KINDS];
    void *act[MAX_CHUNKS];
    int32_t *tokens, *targets;
    double *sums;
    struct pp_frame frame;
    int64_t best_ns[KINDS][MAX_CHUNKS][MAX_CALLS];
    int64_t alone_ns[2][MAX_CALLS]; /* of products of F and B; 0 where an earlier call has the same shape */
};

static void check(pp_status status)
{
    if (status == PP_OK) return;
    fprintf(stderr, "bench_step: %s\n", pp_message());
    exit(pp_exit_code(status));
}

static void *memory(struct bench *b, int64_t bytes)
{
    void *out;
    check(b->backend->alloc(b->device, bytes, &out));
    return out;
}

static void open_bench(struct bench *b)
{
    const struct preset *p = b->preset;
    const int chunk = p->rows / p->chunks, tokens = p->rows * p->seq;
    int64_t work = 0;
    check(pp_backend_find("cpu", &b->backend));
    check(b->backend->open(&(struct pp_device_spec){.workers = 1, .threads = 1}, &b->device));
    check(pp_model_create(&p->shape, 1, NULL, NULL, &b->model));
    for (int k = 0; k < KINDS; k++) {
        const struct pp_class cls = {.kind = kinds[k], .rows = chunk};
        struct pp_program_spec spec = {.seq = p->seq, .slot_rows = cls.rows, .training = true};
        check(pp_model_program(b->model, &cls, &spec, &b->program[k]));
        if (b->program[k].ncalls > MAX_CALLS) check(pp_fail(PP_UNSUPPORTED, "a task of more than %d calls", MAX_CALLS));
        if (b->program[k].work_bytes > work) work = b->program[k].work_bytes;
    }
    b->frame = (struct pp_frame){.seed = 1, .training = true, .loss_scale = 1.f / (float)tokens, .learning_rate = 0.1f};
    b->frame.base[PP_MEM_PARAM] = memory(b, b->model->stages[0].param_bytes);
    b->frame.base[PP_MEM_GRAD] = memory(b, b->model->stages[0].param_bytes);
    b->frame.base[PP_MEM_WORK] = memory(b, work);
    const struct pp_program_spec act = {.seq = p->seq, .slot_rows = chunk, .training = true};
    for (int m = 0; m < p->chunks; m++) b->act[m] = memory(b, pp_model_act_bytes(b->model, 0, &act));
    for (int i = 0; i < b->model->ntensors; i++)
        pp_model_init_tensor(b->model, i, 1,
                             (float *)((char *)b->frame.base[PP_MEM_PARAM] + b->model->tensors[i].offset));
    b->tokens = memory(b, tokens * (int64_t)sizeof *b->tokens);
    b->targets = memory(b, tokens * (int64_t)sizeof *b->targets);
    b->sums = memory(b, b->model->ntensors * (int64_t)sizeof *b->sums);
    b->frame.sums = b->sums;
    for (int i = 0; i < tokens; i++) {
        b->tokens[i] = (int32_t)(((int64_t)i * 7919) % p->shape.vocab);
        b->targets[i] = (int32_t)(((int64_t)i * 104729) % p->shape.vocab);
    }
}

static void set_microbatch(struct bench *b, int m)
{
    const int64_t chunk = b->preset->rows / b->preset->chunks;
    b->frame.first_row = m * chunk;
    b->frame.base[PP_MEM_ACT] = b->act[m];
    b->frame.base[PP_MEM_TOKENS] = b->tokens + m * chunk * b->preset->seq;
    b->frame.base[PP_MEM_TARGETS] = b->targets + m * chunk * b->preset->seq;
}

static void keep_best(int64_t *best, int64_t ns)
{
    if (!*best || ns < *best) *best = ns;
}

static void run(struct bench *b, int kind, int m)
{
    static int64_t ns[MAX_CALLS];
    const struct pp_program *program = &b->program[kind];
    set_microbatch(b, m);
    for (int i = 0; i < program->ncalls; i++) program->calls[i].adds = m > 0;
    check(b->backend->run(b->device, program, &b->frame, NULL, ns));
    for (int i = 0; i < program->ncalls; i++) keep_best(&b->best_ns[kind][m][i], ns[i]);
}

/* Returns its duration in ns. */
static int64_t step(struct bench *b)
{
    const int64_t start = pp_now_ns();
    for (int kind = 0; kind < 2; kind++)
        for (int m = 0; m < b->preset->chunks; m++) run(b, kind, m);
    run(b, 2, 0);
    double square = 0;
    for (int i = 0; i < b->model->ntensors; i++) square += b->sums[i];
    b->frame.clip_factor = (float)fmin(1, 0.5 / (sqrt(square) + 1e-6));
    run(b, 3, 0);
    b->frame.step++;
    return pp_now_ns() - start;
}

static bool same_product(const struct pp_call *a, const struct pp_call *b)
{
    return a->kernel == b->kernel && !memcmp(a->n, b->n, sizeof a->n);
}

/* The first call with the shape of call i of a program. */
static int first_like(const struct pp_program *program, int i)
{
    int first = 0;
    while (!same_product(&program->calls[first], &program->calls[i])) first++;
    return first;
}

/* Each shape of product on its own. Results are overwritten, or grow a little: the time does not depend on them. */
static void run_alone(struct bench *b)
{
    set_microbatch(b, b->preset->chunks - 1);
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; i < b->program[kind].ncalls; i++) {
            struct pp_program one = {.calls = &b->program[kind].calls[i], .ncalls = 1};
            if (!pp_kernel_is_product(one.calls->kernel) || first_like(&b->program[kind], i) != i) continue;
            for (int again = 0; again < ALONE; again++) {
                int64_t ns;
                check(b->backend->run(b->device, &one, &b->frame, NULL, &ns));
                keep_best(&b->alone_ns[kind][i], ns);
            }
        }
}

struct sums {
    double ns[PP_KERNELS], flops[PP_KERNELS], bytes[PP_KERNELS], step_ns, products_ns, alone_ns;
};

static struct sums add_up(const struct bench *b)
{
    struct sums s = {0};
    for (int kind = 0; kind < KINDS; kind++)
        for (int m = 0; m < (kind < 2 ? b->preset->chunks : 1); m++)
            for (int i = 0; i < b->program[kind].ncalls; i++) {
                struct pp_call *call = &b->program[kind].calls[i];
                call->adds = m > 0;
                const double ns = (double)b->best_ns[kind][m][i];
                s.ns[call->kernel] += ns;
                s.flops[call->kernel] += pp_call_flops(call);
                s.bytes[call->kernel] += pp_call_bytes(call);
                s.step_ns += ns;
                if (!pp_kernel_is_product(call->kernel)) continue;
                s.products_ns += ns;
                s.alone_ns += (double)b->alone_ns[kind][first_like(&b->program[kind], i)];
            }
    return s;
}

static void print(const struct bench *b, int64_t best)
{
    const struct sums s = add_up(b);
    double flops = 0;
    for (int k = 0; k < PP_KERNELS; k++)
        if (pp_kernel_is_product(k)) flops += s.flops[k];
    printf("%s: %s\n", b->preset->name, b->backend->describe(b->device));
    printf("step %.3f ms, calls %.3f ms, products %.3f ms at %.1f Gflop/s, alone %.3f ms at %.1f Gflop/s\n",
           (double)best / 1e6, s.step_ns / 1e6, s.products_ns / 1e6, flops / s.products_ns, s.alone_ns / 1e6,
           flops / s.alone_ns);
    printf("step / products alone %.3f, calls / products alone %.3f, products / products alone %.3f\n\n",
           (double)best / s.alone_ns, s.step_ns / s.alone_ns, s.products_ns / s.alone_ns);
    printf("| kernel | ms | %% of the calls | Gflop/s | GB/s |\n| --- | ---: | ---: | ---: | ---: |\n");
    for (int k = 0; k < PP_KERNELS; k++)
        if (s.ns[k] > 0)
            printf("| %s | %.3f | %.1f | %.1f | %.1f |\n", pp_kernel_table[k].name, s.ns[k] / 1e6,
                   100 * s.ns[k] / s.step_ns, s.flops[k] / s.ns[k], s.bytes[k] / s.ns[k]);
}

int main(int argc, char **argv)
{
    static struct bench b;
    const int steps = argc > 2 ? atoi(argv[2]) : 5;
    int64_t best = 0;
    for (int i = 0; i < PRESETS; i++)
        if (argc < 2 ? i == 0 : !strcmp(argv[1], presets[i].name)) b.preset = &presets[i];
    if (!b.preset || steps < 1) {
        fprintf(stderr, "usage: bench_step [small|wide|lab] [steps]\n");
        return 2;
    }
    open_bench(&b);
    for (int i = 0; i < steps; i++) {
        keep_best(&best, step(&b));
        run_alone(&b);
    }
    print(&b, best);
    return 0;
}
