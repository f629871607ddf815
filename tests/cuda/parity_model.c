/* SPDX-License-Identifier: Apache-2.0
 *
 * Two training steps of tiny models, on the device in its precision and on the cpu in fp32: losses, gradients, norm,
 * clip factor and weights. Two stages one after the other, two uneven microbatches each.
 *
 * Tolerances are relative: of the loss, of a tensor's distance to the cpu's against its length. bf16 and tf32 read less
 * of what goes into products, and a relu near zero may pass here what it stops there: in models as tiny as these one
 * element is much of a tensor's length. Single kernels are compared strictly (parity_cases.c); this finds what is wired
 * wrong.
 */
#include "parity.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/calls/fp8.h"
#include "kernels/backend.h"
#include "kernels/model.h"

/* FP8_SEQ: so that microbatches have a multiple of PP_FP8_STEP tokens. */
enum { STAGES = 2, ROWS = 5, PIECE = 3, SEQ = 9, FP8_SEQ = 16, STEPS = 2 };

static const double most_norm = 0.05; /* so that clipping works */
static const struct {
    double loss, tensor;
} tolerances[] = {
    [PP_FP32] = {1e-6, 1e-5}, [PP_TF32] = {5e-4, 1.5e-1}, [PP_BF16] = {1e-3, 2.5e-1}, [PP_FP8] = {5e-3, 4e-1}};
/* The distance of FP8's gradients from the same device's in bf16, all tensors together, in parts of their length. On
 * the emulated device it is 0.063 to 0.158; no GPU has been asked. Less is not FP8, more another scale. */
static const double least_moved = 0.04, most_moved = 0.2;

/* A model with its memory on one device. */
struct side {
    const struct pp_backend *backend;
    struct pp_device *device;
    struct pp_model *model;
    int seq, tokens;
    bool split;
    char *param[STAGES], *grad[STAGES], *param16[STAGES], *act[STAGES];
    char *between, *back; /* the activation between the stages and its gradient */
    char *inputs, *targets, *loss, *sums, *factor;
    struct pp_frame frame;
    double losses[STEPS];
    float factors[STEPS];
};

static char *device_memory(const struct side *s, int64_t bytes)
{
    void *out;
    PARITY_OK(s->backend->alloc(s->device, bytes, &out));
    return out;
}

static void *host_memory(int64_t bytes)
{
    void *out = calloc(1, (size_t)bytes);
    assert_non_null(out);
    return out;
}

static struct pp_program_spec spec_of(const struct side *s)
{
    return (struct pp_program_spec){s->seq, PIECE, true, s->split};
}

static void upload_weights(const struct side *s)
{
    for (int i = 0; i < s->model->ntensors; i++) {
        const struct pp_tensor *t = &s->model->tensors[i];
        float *values = host_memory(t->elements * (int64_t)sizeof *values);
        uint16_t *rounded = host_memory(t->elements * (int64_t)sizeof *rounded);
        pp_model_init_tensor(s->model, i, 1, values);
        for (int64_t k = 0; k < t->elements; k++) rounded[k] = parity_to_bf16(values[k]);
        PARITY_OK(s->backend->upload(s->device, s->param[t->stage] + t->offset, values, t->elements * 4));
        if (t->offset16 >= 0)
            PARITY_OK(s->backend->upload(s->device, s->param16[t->stage] + t->offset16, rounded, t->elements * 2));
        free(values);
        free(rounded);
    }
}

static void upload_text(const struct side *s)
{
    int32_t text[ROWS * FP8_SEQ + 1];
    uint32_t x = 12345;
    for (int i = 0; i <= s->tokens; i++) {
        x = x * 1664525u + 1013904223u;
        text[i] = (int32_t)((x >> 8) % (uint32_t)s->model->shape.vocab);
    }
    PARITY_OK(s->backend->upload(s->device, s->inputs, text, s->tokens * 4));
    PARITY_OK(s->backend->upload(s->device, s->targets, text + 1, s->tokens * 4));
}

static void open_side(struct side *s, const struct pp_shape *shape, int precision)
{
    struct pp_shape mine = *shape;
    mine.precision = precision;
    PARITY_OK(pp_model_create(&mine, STAGES, "uniform", NULL, &s->model));
    const struct pp_program_spec spec = spec_of(s);
    for (int i = 0; i < STAGES; i++) {
        s->param[i] = device_memory(s, s->model->stages[i].param_bytes);
        s->grad[i] = device_memory(s, s->model->stages[i].param_bytes);
        s->param16[i] = pp_in_bf16(precision) ? device_memory(s, s->model->stages[i].param16_bytes) : NULL;
        s->act[i] = device_memory(s, pp_model_act_bytes(s->model, i, &spec));
    }
    s->between = device_memory(s, (int64_t)PIECE * s->seq * shape->d_model * 4);
    s->back = device_memory(s, (int64_t)PIECE * s->seq * shape->d_model * 4);
    s->inputs = device_memory(s, s->tokens * 4);
    s->targets = device_memory(s, s->tokens * 4);
    s->loss = device_memory(s, sizeof(double));
    s->sums = device_memory(s, s->model->ntensors * (int64_t)sizeof(double));
    s->factor = device_memory(s, sizeof(float));
    s->frame =
        (struct pp_frame){.seed = 99, .training = true, .loss_scale = 1.0f / (float)s->tokens, .learning_rate = 0.5f};
    upload_weights(s);
    upload_text(s);
}

static void close_side(struct side *s)
{
    const struct pp_program_spec spec = spec_of(s);
    const struct pp_backend *b = s->backend;
    const int64_t between = (int64_t)PIECE * s->seq * s->model->shape.d_model * 4;
    for (int i = 0; i < STAGES; i++) {
        b->release(s->device, s->param[i], s->model->stages[i].param_bytes);
        b->release(s->device, s->grad[i], s->model->stages[i].param_bytes);
        if (s->param16[i]) b->release(s->device, s->param16[i], s->model->stages[i].param16_bytes);
        b->release(s->device, s->act[i], pp_model_act_bytes(s->model, i, &spec));
    }
    b->release(s->device, s->between, between);
    b->release(s->device, s->back, between);
    b->release(s->device, s->inputs, s->tokens * 4);
    b->release(s->device, s->targets, s->tokens * 4);
    b->release(s->device, s->loss, sizeof(double));
    b->release(s->device, s->sums, s->model->ntensors * (int64_t)sizeof(double));
    b->release(s->device, s->factor, sizeof(float));
    pp_model_free(s->model);
}

static struct pp_class class_of(int kind, int stage, int first_row)
{
    const int rows = ROWS - first_row < PIECE ? ROWS - first_row : PIECE;
    return (struct pp_class){.kind = kind,
                             .stage = stage,
                             .rows = kind == PP_NORM || kind == PP_STEP ? 0 : rows,
                             .rounds = kind == PP_F && first_row == 0,
                             .adds = first_row > 0};
}

/* Runs one task; in, out: NULL where the stage has none. */
static void run_task(struct side *s, int kind, int stage, int first_row, void *in, void *out)
{
    const struct pp_class cls = class_of(kind, stage, first_row);
    const struct pp_program_spec spec = spec_of(s);
    struct pp_program program;
    PARITY_OK(pp_model_program(s->model, &cls, &spec, &program));
    char *work = device_memory(s, program.work_bytes);
    struct pp_frame *f = &s->frame;
    memcpy(f->base,
           (void *[PP_MEM_REGIONS]){[PP_MEM_PARAM] = s->param[stage],
                                    [PP_MEM_GRAD] = s->grad[stage],
                                    [PP_MEM_ACT] = s->act[stage],
                                    [PP_MEM_IN] = in,
                                    [PP_MEM_OUT] = out,
                                    [PP_MEM_WORK] = work,
                                    [PP_MEM_TOKENS] = s->inputs + first_row * s->seq * 4,
                                    [PP_MEM_TARGETS] = s->targets + first_row * s->seq * 4,
                                    [PP_MEM_PARAM16] = s->param16[stage]},
           sizeof f->base);
    f->first_row = first_row;
    f->loss = (double *)s->loss;
    f->sums = (double *)s->sums + s->model->stages[stage].first_tensor;
    PARITY_OK(s->backend->run(s->device, &program, f, NULL, NULL));
    s->backend->release(s->device, work, program.work_bytes);
    pp_program_free(&program);
}

/* Has the device all products of the model? Of matrices of bfloat16 that are aligned to 2 bytes it need not. */
static bool is_offered(const struct side *s)
{
    const int kinds[] = {PP_F, s->split ? PP_I : PP_B, s->split ? PP_W : PP_F};
    const struct pp_program_spec spec = spec_of(s);
    pp_status status = PP_OK;
    for (int i = 0; i < STAGES * 3 * 2 && status == PP_OK; i++) {
        const struct pp_class cls = class_of(kinds[i % 3], i / 3 % STAGES, i / 3 / STAGES * PIECE);
        struct pp_program program;
        PARITY_OK(pp_model_program(s->model, &cls, &spec, &program));
        status = s->backend->queue->prepare(s->device, &program);
        pp_program_free(&program);
    }
    if (status == PP_UNSUPPORTED && pp_in_bf16(s->model->shape.precision)) {
        print_message("a model: not offered: %s\n", pp_message());
        return false;
    }
    parity_status(status, "the products of a model");
    return true;
}

static void run_microbatch(struct side *s, int step, int first_row)
{
    double loss;
    run_task(s, PP_F, 0, first_row, NULL, s->between);
    run_task(s, PP_F, 1, first_row, s->between, NULL);
    PARITY_OK(s->backend->download(s->device, &loss, s->loss, sizeof loss));
    s->losses[step] += loss / s->tokens;
    run_task(s, s->split ? PP_I : PP_B, 1, first_row, NULL, s->back);
    if (s->split) run_task(s, PP_W, 1, first_row, NULL, s->back);
    run_task(s, s->split ? PP_I : PP_B, 0, first_row, s->back, NULL);
    if (s->split) run_task(s, PP_W, 0, first_row, s->back, NULL);
}

/* *factor: what the device's own arithmetic, or this one, makes of the sums. */
static void set_factor(struct side *s, float *factor)
{
    const int n = s->model->ntensors;
    const struct pp_queue_ops *ops = s->backend->queue;
    double *sums = host_memory(n * (int64_t)sizeof *sums), total = 0;
    PARITY_OK(s->backend->download(s->device, sums, s->sums, n * (int64_t)sizeof *sums));
    for (int i = 0; i < n; i++) total += sums[i];
    free(sums);
    *factor = (float)fmin(1, most_norm / (sqrt(total) + 1e-6));
    s->frame.clip_factor = *factor;
    if (!ops) return;
    s->frame.clip_factor = NAN;
    s->frame.clip = (const float *)s->factor;
    PARITY_OK(ops->clip_factor(s->device, ops->compute(s->device), (const double *)s->sums, n, most_norm,
                               (float *)s->factor));
}

static void run_step(struct side *s, int step)
{
    s->frame.step = (uint32_t)step;
    for (int first_row = 0; first_row < ROWS; first_row += PIECE) run_microbatch(s, step, first_row);
    for (int i = 0; i < STAGES; i++) run_task(s, PP_NORM, i, 0, NULL, NULL);
    set_factor(s, &s->factors[step]);
    for (int i = 0; i < STAGES; i++) run_task(s, PP_STEP, i, 0, NULL, NULL);
}

/* ---- comparison ---- */

static float *download_tensor(const struct side *s, int tensor, char *const *region)
{
    const struct pp_tensor *t = &s->model->tensors[tensor];
    float *out = host_memory(t->elements * (int64_t)sizeof *out);
    PARITY_OK(s->backend->download(s->device, out, region[t->stage] + t->offset, t->elements * 4));
    return out;
}

/* Their squares. */
static void add_distance(const float *a, const float *b, int64_t n, double *distance, double *length)
{
    for (int64_t k = 0; k < n; k++) {
        *distance += ((double)a[k] - b[k]) * ((double)a[k] - b[k]);
        *length += (double)b[k] * b[k];
    }
}

static void compare_tensor(const char *what, const char *name, const float *a, const float *b, int64_t n,
                           double tolerance)
{
    double distance = 0, length = 0;
    add_distance(a, b, n, &distance, &length);
    if (!(sqrt(distance) <= tolerance * (sqrt(length) + 1e-6)))
        fail_msg("%s of %s: %.3g from the cpu's, which is %.3g long (tolerance %g)", what, name, sqrt(distance),
                 sqrt(length), tolerance);
}

/* The copies that products read are the weights, rounded. */
static void check_copy(const struct side *s, const struct pp_tensor *t, const float *weights)
{
    uint16_t *copy = host_memory(t->elements * (int64_t)sizeof *copy);
    PARITY_OK(s->backend->download(s->device, copy, s->param16[t->stage] + t->offset16, t->elements * 2));
    for (int64_t k = 0; k < t->elements; k++)
        if (copy[k] != parity_to_bf16(weights[k]))
            fail_msg("%s: element %lld of the copy is not the rounded weight", t->name, (long long)k);
    free(copy);
}

static void compare(const struct side *s, const struct side *cpu, int precision)
{
    const double tolerance = tolerances[precision].tensor;
    for (int i = 0; i < s->model->ntensors; i++) {
        const struct pp_tensor *t = &s->model->tensors[i];
        float *const got[] = {download_tensor(s, i, s->grad), download_tensor(s, i, s->param)};
        float *const expected[] = {download_tensor(cpu, i, cpu->grad), download_tensor(cpu, i, cpu->param)};
        compare_tensor("gradient", t->name, got[0], expected[0], t->elements, tolerance);
        compare_tensor("weights", t->name, got[1], expected[1], t->elements, tolerance);
        if (t->offset16 >= 0) check_copy(s, t, got[1]);
        for (int k = 0; k < 2; k++) {
            free(got[k]);
            free(expected[k]);
        }
    }
    for (int step = 0; step < STEPS; step++) {
        const double a = s->losses[step], b = cpu->losses[step];
        if (!(fabs(a - b) <= tolerances[precision].loss * b)) fail_msg("loss of step %d: %.9g, cpu: %.9g", step, a, b);
        if (!(fabsf(s->factors[step] - cpu->factors[step]) <= tolerance * cpu->factors[step]))
            fail_msg("clip factor of step %d: %.9g, cpu: %.9g", step, s->factors[step], cpu->factors[step]);
    }
}

static void check_moved(const struct side *fp8, const struct side *bf16)
{
    double distance = 0, length = 0;
    for (int i = 0; i < fp8->model->ntensors; i++) {
        float *a = download_tensor(fp8, i, fp8->grad), *b = download_tensor(bf16, i, bf16->grad);
        add_distance(a, b, fp8->model->tensors[i].elements, &distance, &length);
        free(a);
        free(b);
    }
    const double moved = sqrt(distance / length);
    print_message("FP8 moves gradients by %.3f of bf16's\n", moved);
    if (!(moved >= least_moved && moved <= most_moved))
        fail_msg("FP8 moves gradients by %.3g of bf16's, not %g to %g", moved, least_moved, most_moved);
}

static void compare_with_bf16(const struct side *fp8, const struct pp_shape *shape)
{
    struct side bf16 = {.backend = parity_devices[PP_BF16].backend,
                        .device = parity_devices[PP_BF16].device,
                        .seq = fp8->seq,
                        .tokens = fp8->tokens,
                        .split = fp8->split};
    open_side(&bf16, shape, PP_BF16);
    for (int step = 0; step < STEPS; step++) run_step(&bf16, step);
    check_moved(fp8, &bf16);
    close_side(&bf16);
}

void parity_steps(const struct parity_device *d, int precision, const struct pp_shape *shape, bool split)
{
    const int seq = precision == PP_FP8 ? FP8_SEQ : SEQ;
    struct side cpu = {.seq = seq, .tokens = ROWS * seq, .split = split}, device = cpu;
    const struct pp_device_spec spec = {.workers = 1, .on_host = 1, .threads = 1};
    PARITY_OK(pp_backend_find(NULL, &cpu.backend));
    PARITY_OK(cpu.backend->open(&spec, &cpu.device));
    device.backend = d->backend;
    device.device = d->device;
    open_side(&device, shape, precision);
    open_side(&cpu, shape, PP_FP32);
    const bool offered = is_offered(&device);
    for (int step = 0; step < STEPS && offered; step++) {
        run_step(&device, step);
        run_step(&cpu, step);
    }
    if (offered) compare(&device, &cpu, precision);
    if (offered && precision == PP_FP8) compare_with_bf16(&device, shape);
    close_side(&device);
    close_side(&cpu);
    cpu.backend->close(cpu.device);
}
