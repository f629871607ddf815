/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_step [small|wide|lab] [steps]: one training step of a whole model on one thread, kernel by kernel. Prints the
 * best step, its share by kernel, and how far it is above its matrix products. Not a test: it judges nothing.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "kernels/backend.h"
#include "kernels/kernels.h"
#include "kernels/model.h"

struct preset {
    const char *name;
    struct pp_shape shape;
    int rows, seq, chunks;
};

static const struct preset presets[] = {
    {"small", {200, 2, 200, 2, 28782, PP_MASK_CAUSAL, 0.2, true, false, false}, 20, 35, 4},
    {"wide", {512, 8, 2048, 8, 2000, PP_MASK_CAUSAL, 0.2, true, false, false}, 16, 64, 4},
    {"lab", {12, 4, 24, 2, 100, PP_MASK_NONE, 0.1, false, true, true}, 4, 9, 2},
};

enum { PRESETS = sizeof presets / sizeof presets[0], KINDS = 4, MAX_CALLS = 4096, MAX_CHUNKS = 32 };

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
    double kernel_ns[PP_KERNELS]; /* of the current step */
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
        const struct pp_class cls = {kinds[k], 0, chunk};
        struct pp_program_spec spec = {.seq = p->seq, .slot_rows = cls.rows, .training = true};
        check(pp_model_program(b->model, &cls, &spec, &b->program[k]));
        if (b->program[k].work_bytes > work) work = b->program[k].work_bytes;
    }
    b->frame = (struct pp_frame){.seed = 1, .training = true, .loss_scale = 1.f / (float)tokens, .learning_rate = 0.1f};
    b->frame.base[PP_MEM_PARAM] = memory(b, b->model->stages[0].param_bytes);
    b->frame.base[PP_MEM_GRAD] = memory(b, b->model->stages[0].param_bytes);
    b->frame.base[PP_MEM_WORK] = memory(b, work);
    for (int m = 0; m < p->chunks; m++)
        b->act[m] = memory(b, pp_model_act_bytes(b->model, 0, &(struct pp_program_spec){p->seq, chunk, true, false}));
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

static void run(struct bench *b, int kind, int m)
{
    static int64_t ns[MAX_CALLS];
    const struct pp_program *program = &b->program[kind];
    const int64_t chunk = b->preset->rows / b->preset->chunks;
    b->frame.first_row = m * chunk;
    b->frame.accumulate = m > 0;
    b->frame.base[PP_MEM_ACT] = b->act[m];
    b->frame.base[PP_MEM_TOKENS] = b->tokens + m * chunk * b->preset->seq;
    b->frame.base[PP_MEM_TARGETS] = b->targets + m * chunk * b->preset->seq;
    check(b->backend->run(b->device, program, &b->frame, NULL, program->ncalls <= MAX_CALLS ? ns : NULL));
    for (int i = 0; i < program->ncalls && program->ncalls <= MAX_CALLS; i++)
        b->kernel_ns[program->calls[i].kernel] += (double)ns[i];
}

/* Returns its duration in ns. */
static double step(struct bench *b)
{
    const int64_t start = pp_now_ns();
    memset(b->kernel_ns, 0, sizeof b->kernel_ns);
    for (int kind = 0; kind < 2; kind++)
        for (int m = 0; m < b->preset->chunks; m++) run(b, kind, m);
    run(b, 2, 0);
    double square = 0;
    for (int i = 0; i < b->model->ntensors; i++) square += b->sums[i];
    b->frame.clip_factor = (float)fmin(1, 0.5 / (sqrt(square) + 1e-6));
    run(b, 3, 0);
    b->frame.step++;
    return (double)(pp_now_ns() - start);
}

static bool is_product(int kernel) { return kernel >= PP_KERNEL_GEMM_NT && kernel <= PP_KERNEL_GEMM_TN; }

static double product_flops(const struct bench *b)
{
    double sum = 0;
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; i < b->program[kind].ncalls; i++)
            if (is_product(b->program[kind].calls[i].kernel)) sum += pp_call_flops(&b->program[kind].calls[i]);
    return sum * b->preset->chunks;
}

static void print(const struct bench *b, double best, const double *kernel_ns)
{
    double products = 0;
    for (int k = 0; k < PP_KERNELS; k++)
        if (is_product(k)) products += kernel_ns[k];
    printf("%s: %s\n", b->preset->name, b->backend->describe(b->device));
    printf("step %.3f ms, products %.3f ms at %.1f GF/s, step / products %.3f\n", best / 1e6, products / 1e6,
           product_flops(b) / products, best / products);
    for (int k = 0; k < PP_KERNELS; k++)
        printf("%-16s %10.3f ms %5.1f %%\n", pp_kernel_table[k].name, kernel_ns[k] / 1e6, 100 * kernel_ns[k] / best);
}

int main(int argc, char **argv)
{
    static struct bench b;
    const int steps = argc > 2 ? atoi(argv[2]) : 5;
    double best = INFINITY, kernel_ns[PP_KERNELS] = {0};
    for (int i = 0; i < PRESETS; i++)
        if (argc < 2 ? i == 0 : !strcmp(argv[1], presets[i].name)) b.preset = &presets[i];
    if (!b.preset) {
        fprintf(stderr, "usage: bench_step [small|wide|lab] [steps]\n");
        return 2;
    }
    open_bench(&b);
    for (int i = 0; i < steps; i++) {
        const double ns = step(&b);
        if (ns >= best) continue;
        best = ns;
        memcpy(kernel_ns, b.kernel_ns, sizeof kernel_ns);
    }
    print(&b, best, kernel_ns);
    return 0;
}
