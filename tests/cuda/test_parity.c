/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend `cuda` against the cpu: every kernel in every precision, sums, the clip factor, initial weights, numbers
 * that are not finite, and whole steps of tiny models. Without a GPU it says so and ends with 77. PPKIT_CUDA_BACKEND
 * may name an emulated backend. A GPU that is too old for products in FP8 has all the rest.
 *
 * An argument names the one kernel to look at. PP_PARITY_SHARERS=N: all in a share of the GPU, as one of N workers has;
 * with three or more, each precision in another one.
 */
#include "parity.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/backend.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cuda/attention_tiles.h"
#include "tests/cuda/emulated.h"
#include "tests/cuda/test_filter.h"

struct parity_device parity_devices[PP_PRECISIONS];

void parity_status(pp_status status, const char *what)
{
    if (status != PP_OK) fail_msg("%s: %s", what, pp_message());
}

/* ---- kernels ---- */

/* They know bfloat16 only, which is the precision of their calls in programs. */
static bool is_fp8(int kernel)
{
    return kernel == PP_KERNEL_GEMM_FP8 || kernel == PP_KERNEL_AMAX || kernel == PP_KERNEL_TO_FP8;
}

/* Logits can make room for their gradient only where both are of one size. */
static bool applies(const struct parity_case *c, int precision, unsigned variant)
{
    const int *alias = parity_kernels[c->kernel].alias[c->whole];
    if (variant & PARITY_ALIAS && alias[0] == alias[1]) return false;
    const bool loses = c->kernel == PP_KERNEL_CROSS_ENTROPY || c->kernel == PP_KERNEL_CROSS_ENTROPY_JOIN;
    const bool in_place = loses && variant & PARITY_ALIAS;
    if (is_fp8(c->kernel) && precision != PP_BF16) return false;
    if (c->kernel == PP_KERNEL_TO_FP8 && !c->whole && variant & PARITY_ABSENT) return false; /* it would make nothing */
    return !in_place || (parity_call_of(c).loss.gradient && precision != PP_BF16);
}

#ifdef __SANITIZE_ADDRESS__
enum { IN_TURN = 1 };
#else
enum { IN_TURN = 0 };
#endif
#if defined __SANITIZE_ADDRESS__ || defined PARITY_MEMORY_ONLY
enum { MEMORY_ONLY = 1, LONG_ROWS = 1000, MANY_HEADS = 100, MOST_WORK = 1000000 };
#else
enum { MEMORY_ONLY = 0, LONG_ROWS = 1000, MANY_HEADS = 100, MOST_WORK = 50000000 };
#endif

/* PP_PARITY_BRIEF=1: the cases that AddressSanitizer sees, but for the turns of their variants. */
static bool is_brief(void) { return MEMORY_ONLY || getenv("PP_PARITY_BRIEF"); }

/* Is it attention of short rows that tensor cores make? */
static bool multiplies_in_tf32(const struct parity_case *c)
{
    struct pp_call call = parity_call_of(c);
    call.precision = PP_TF32;
    return (c->kernel == PP_KERNEL_ATTENTION || c->kernel == PP_KERNEL_ATTENTION_GRAD) && pp_short_multiplies(&call);
}

/* All other attention of tf32 is that of fp32, which sees rows of thousands.
 * AddressSanitizer looks at memory: tf32 otherwise reads and writes that of fp32, and a row of thousands takes a minute
 * there, so that attention sees it in one precision, and not at all many heads and what takes longer. Of a case's
 * variants it sees the plain one and, a little beside the vectors, the fullest, in turn: one in fp32 and the other in
 * bf16, of the next case the other way round. Numbers are compared in all of them without it. */
static bool is_worth_it(const struct parity_case *c, int precision)
{
    const struct pp_attention_dims n = parity_call_of(c).attention;
    const bool attends = c->kernel >= PP_KERNEL_ATTENTION && c->kernel <= PP_KERNEL_FLASH_GRAD;
    if (c->hopper && (precision != PP_TF32 || is_emulated())) return false;
    if (attends && n.seq > LONG_ROWS && precision == PP_TF32) return false;
    if (!is_brief()) return true;
    const double work = (double)n.rows * n.seq * n.seq * n.heads * n.dh;
    if (attends && (n.heads > MANY_HEADS || work > MOST_WORK)) return false;
    return precision == PP_TF32 ? multiplies_in_tf32(c) : precision == PP_BF16 || !attends || n.seq <= LONG_ROWS;
}

/* Does the case, which has this number in its list, run in the variant? `fullest`: of those that its kernel has. Large
 * cases run in that one only. */
static bool takes(const struct parity_case *c, int number, int precision, unsigned variant, unsigned fullest)
{
    const bool multiplies = c->kernel == PP_KERNEL_GEMM_FP8; /* whose factors are aligned everywhere */
    const unsigned all = parity_kernels[c->kernel].variants | (multiplies ? 0 : PARITY_SHIFT);
    if (variant & ~all || (c->large && variant != fullest)) return false;
    if (is_brief() && !c->large && variant && variant != (fullest | PARITY_SHIFT)) return false;
    if (IN_TURN && !c->large && !is_fp8(c->kernel) && (variant == 0) == (number + (precision == PP_BF16)) % 2)
        return false;
    return applies(c, precision, variant);
}

/* Returns how many variants were compared. tf32 concerns kernels with products only. */
static int run_case(const struct parity_case *c, int number, int precision)
{
    const struct parity_kernel *kernel = &parity_kernels[c->kernel];
    const struct parity_device *device = &parity_devices[c->kernel == PP_KERNEL_GEMM_FP8 ? PP_FP8 : precision];
    int runs = 0;
    unsigned fullest = kernel->variants & ~(unsigned)PARITY_ABSENT;
    if (!applies(c, precision, fullest)) fullest &= ~(unsigned)PARITY_ALIAS;
    if (!is_worth_it(c, precision) || !device->device) return 0;
    if (precision == PP_TF32 && kernel->tolerance[PP_TF32] == kernel->tolerance[PP_FP32]) return 0;
    for (unsigned variant = 0; variant < PARITY_VARIANTS; variant++)
        if (takes(c, number, precision, variant, fullest)) runs += parity_call(device, c, variant);
    return runs;
}

/* Some GPUs have no products in FP8, the emulated ones do. */
static bool is_lacking(int kernel)
{
    return kernel == PP_KERNEL_GEMM_FP8 && !parity_devices[PP_FP8].device && !is_emulated();
}

/* *state: the kernel. */
static void test_kernel(void **state)
{
    const struct parity_case *const all[] = {parity_cases,         parity_expert_cases, parity_latent_cases,
                                             parity_context_cases, parity_windows,      parity_update_cases,
                                             parity_fp8_cases};
    const int kernel = *(const int *)*state;
    int runs = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (const struct parity_case *c = all[i]; c->n[0]; c++)
            for (int p = PP_FP32; p <= PP_BF16 && c->kernel == kernel; p++) runs += run_case(c, (int)(c - all[i]), p);
    if (!runs && is_lacking(kernel)) skip();
    if (!runs) fail_msg("%s: nothing was compared", pp_kernel_table[kernel].name);
}

/* ---- where the workers of a rank meet ---- */

struct asked {
    struct pp_join_call what;
    int calls;
};

static void note(void *arg, const struct pp_join_call *call)
{
    struct asked *a = arg;
    *a = (struct asked){*call, a->calls + 1};
}

static void check_join(int kernel, enum pp_join_op op, int precision, bool wide, int type)
{
    const struct parity_device *d = &parity_devices[precision];
    char memory[64];
    struct asked asked = {0};
    struct pp_call call = {.kernel = kernel,
                           .n = {7, 12},
                           .precision = precision,
                           .ref = {{PP_MEM_WORK, .offset = 16}, {PP_MEM_WORK, .offset = 32}}};
    *(pp_join_exchanges(op) ? &call.exchange.wide : &call.join.wide) = wide;
    const struct pp_join join = {.run = note, .arg = &asked};
    const struct pp_frame frame = {.base = {[PP_MEM_WORK] = memory}, .tensor = 2, .join = &join};
    PARITY_OK(d->backend->queue->run(d->device, &(const struct pp_program){.calls = &call, .ncalls = 1}, &frame));
    assert_true(asked.calls == 1 && asked.what.memory == memory + 16 && asked.what.elements == 7 * 12);
    assert_true(asked.what.type == type && asked.what.from == (pp_join_exchanges(op) ? memory + 32 : NULL));
    assert_int_equal(asked.what.op, op);
}

static void test_joins(void **state)
{
    (void)state;
    check_join(PP_KERNEL_ALL_REDUCE, PP_JOIN_ALL_REDUCE, PP_FP32, false, PP_SUM_FLOAT);
    check_join(PP_KERNEL_ALL_REDUCE, PP_JOIN_ALL_REDUCE, PP_TF32, true, PP_SUM_FLOAT);
    check_join(PP_KERNEL_ALL_REDUCE, PP_JOIN_ALL_REDUCE, PP_BF16, false, PP_SUM_BF16);
    check_join(PP_KERNEL_ALL_REDUCE, PP_JOIN_ALL_REDUCE, PP_BF16, true, PP_SUM_FLOAT);
    check_join(PP_KERNEL_REDUCE_SCATTER, PP_JOIN_REDUCE_SCATTER, PP_BF16, false, PP_SUM_BF16);
    check_join(PP_KERNEL_ALL_GATHER, PP_JOIN_ALL_GATHER, PP_TF32, false, PP_SUM_FLOAT);
    check_join(PP_KERNEL_ALL_TO_ALL, PP_JOIN_ALL_TO_ALL, PP_BF16, false, PP_SUM_BF16);
    check_join(PP_KERNEL_ALL_TO_ALL, PP_JOIN_ALL_TO_ALL, PP_BF16, true, PP_SUM_FLOAT);
    check_join(PP_KERNEL_SHIFT, PP_JOIN_SHIFT, PP_BF16, false, PP_SUM_BF16);
    check_join(PP_KERNEL_SHIFT, PP_JOIN_SHIFT, PP_FP32, true, PP_SUM_FLOAT);
}

/* ---- the queue's own arithmetic ---- */

static void wait_for_queue(const struct parity_device *d)
{
    const struct pp_queue_ops *ops = d->backend->queue;
    struct pp_mark *mark;
    bool reached = false;
    PARITY_OK(ops->mark_create(d->device, false, &mark));
    PARITY_OK(ops->record(d->device, ops->compute(d->device), mark));
    while (!reached) PARITY_OK(ops->reached(d->device, mark, &reached));
    ops->mark_destroy(d->device, mark);
}

enum { PARTS = 5, MOST = 3001 };

/* Sums in the order of the parts: the same bits as here. in_place: the third part is the result. */
static void check_float_sum(int n, int offset, bool in_place)
{
    const struct parity_device *d = &parity_devices[PP_FP32];
    static float host[PARTS + 1][MOST], got[MOST];
    const void *parts[PARTS];
    char *base;
    PARITY_OK(d->backend->alloc(d->device, sizeof host, (void **)&base));
    for (int i = 0; i < PARTS; i++) {
        for (int k = 0; k < MOST; k++) host[i][k] = (float)(sin(i * MOST + k) * pow(10, i));
        parts[i] = base + i * (int64_t)sizeof host[0] + offset * (int64_t)sizeof(float);
    }
    PARITY_OK(d->backend->upload(d->device, base, host, sizeof host));
    const int to = in_place ? 2 : PARTS;
    const struct pp_queue_ops *ops = d->backend->queue;
    PARITY_OK(ops->sum(d->device, ops->compute(d->device),
                       base + to * (int64_t)sizeof host[0] + offset * (int64_t)sizeof(float), parts, PARTS, n,
                       PP_SUM_FLOAT));
    wait_for_queue(d);
    PARITY_OK(d->backend->download(d->device, got, base + to * (int64_t)sizeof host[0], sizeof got));
    for (int k = 0; k < MOST; k++) {
        float sum = host[0][k];
        for (int i = 1; i < PARTS; i++) sum += host[i][k];
        const bool inside = k >= offset && k < offset + n;
        const float expected = inside ? sum : host[to][k];
        if (got[k] != expected) fail_msg("sum of %d: element %d is %.9g, not %.9g", n, k, got[k], expected);
    }
    d->backend->release(d->device, base, sizeof host);
}

/* The same of bfloat16: each sum of two is rounded. */
static void check_bf16_sum(int n, int offset, bool in_place)
{
    const struct parity_device *d = &parity_devices[PP_BF16];
    const struct pp_queue_ops *ops = d->backend->queue;
    static uint16_t host[PARTS + 1][MOST], got[MOST];
    const void *parts[PARTS];
    char *base;
    PARITY_OK(d->backend->alloc(d->device, sizeof host, (void **)&base));
    for (int i = 0; i < PARTS; i++) {
        for (int k = 0; k < MOST; k++) host[i][k] = parity_to_bf16((float)(sin(i * MOST + k) * pow(3, i)));
        parts[i] = base + (i * (int64_t)MOST + offset) * 2;
    }
    PARITY_OK(d->backend->upload(d->device, base, host, sizeof host));
    const int64_t to = in_place ? 2 : PARTS;
    PARITY_OK(
        ops->sum(d->device, ops->compute(d->device), base + (to * MOST + offset) * 2, parts, PARTS, n, PP_SUM_BF16));
    wait_for_queue(d);
    PARITY_OK(d->backend->download(d->device, got, base + to * MOST * 2, sizeof got));
    for (int k = 0; k < MOST; k++) {
        uint16_t sum = host[0][k];
        for (int i = 1; i < PARTS; i++) sum = parity_to_bf16(parity_from_bf16(sum) + parity_from_bf16(host[i][k]));
        const bool inside = k >= offset && k < offset + n;
        const uint16_t expected = inside ? sum : host[to][k];
        if (got[k] != expected) fail_msg("sum of %d: element %d is %#x, not %#x", n, k, got[k], expected);
    }
    d->backend->release(d->device, base, sizeof host);
}

static void test_sums(void **state)
{
    (void)state;
    check_bf16_sum(1, 0, false);
    check_bf16_sum(3000, 0, false);
    check_bf16_sum(2996, 1, true);
    check_bf16_sum(2999, 0, false);
    check_float_sum(1, 0, false);
    check_float_sum(3000, 0, false);
    check_float_sum(3000, 0, true);
    check_float_sum(2996, 1, false); /* elements that are not aligned to quads */
    check_float_sum(2999, 0, true);
}

/* The factor, from sums of squares in double that also went through sum(). */
static void check_clip(const double *sums, int n, double most, float expected)
{
    const struct parity_device *d = &parity_devices[PP_FP32];
    const struct pp_queue_ops *ops = d->backend->queue;
    const int64_t bytes = n * (int64_t)sizeof *sums;
    char *base;
    float factor;
    PARITY_OK(d->backend->alloc(d->device, 3 * bytes + 8, (void **)&base));
    PARITY_OK(d->backend->upload(d->device, base, sums, bytes)); /* the second part is zeros */
    const void *const parts[] = {base, base + bytes};
    PARITY_OK(ops->sum(d->device, ops->compute(d->device), base + 2 * bytes, parts, 2, n, PP_SUM_DOUBLE));
    PARITY_OK(ops->clip_factor(d->device, ops->compute(d->device), (const double *)(base + 2 * bytes), n, most,
                               (float *)(base + 3 * bytes)));
    wait_for_queue(d);
    PARITY_OK(d->backend->download(d->device, &factor, base + 3 * bytes, sizeof factor));
    d->backend->release(d->device, base, 3 * bytes + 8);
    if (factor != expected && !(isnan(factor) && isnan(expected)))
        fail_msg("clip factor of %d sums at %g is %.9g, expected %.9g", n, most, factor, expected);
}

static void test_clip(void **state)
{
    (void)state;
    const double sums[] = {9, 0.5, 6.5, 1e-9, 3}, broken[] = {1, NAN};
    double total = 0;
    for (int i = 0; i < 5; i++) total += sums[i];
    check_clip(sums, 5, 0.5, (float)(0.5 / (sqrt(total) + 1e-6)));
    check_clip(sums, 3, 2, (float)(2 / (4 + 1e-6)));
    check_clip(sums, 1, 4, 1);
    check_clip(broken, 2, 1, NAN); /* a step that failed stays visible */
}

static void test_model(void **state)
{
    (void)state;
    for (int precision = MEMORY_ONLY ? PP_BF16 : PP_FP32; precision < PP_PRECISIONS; precision++)
        if (parity_devices[precision].device) parity_model(&parity_devices[precision], precision);
}

/* ---- the program ---- */

enum { OTHERS = 9 }; /* tests that are not of one kernel */

/* Where the device should be a share: is it? */
static pp_status check_share(const struct parity_device *d, int sharers)
{
    const char *text = d->backend->describe(d->device);
    return sharers == 1 || strstr(text, ", share ") ? PP_OK : pp_fail(PP_UNSUPPORTED, "no shares: %s", text);
}

static pp_status open_device(const struct pp_backend *backend, int precision, int sharers)
{
    const struct pp_device_spec spec = {.worker = precision % sharers,
                                        .workers = sharers,
                                        .on_host = 1,
                                        .threads = 1,
                                        .gpus = 1,
                                        .precision = precision};
    struct parity_device *d = &parity_devices[precision];
    *d = (struct parity_device){.backend = backend, .precision = precision == PP_FP8 ? PP_BF16 : precision};
    PP_TRY(backend->open(&spec, &d->device));
    PP_TRY(backend->queue->use(d->device));
    return check_share(d, sharers);
}

static pp_status open_devices(void)
{
    const struct pp_backend *backend;
    const char *given = getenv("PP_PARITY_SHARERS");
    const int sharers = given ? atoi(given) : 1;
    PP_TRY(pp_backend_find("cuda", &backend));
    PP_TRY(pp_gemm_open(1));
    for (int precision = PP_FP32; precision < PP_PRECISIONS; precision++) {
        const pp_status status = open_device(backend, precision, sharers);
        if (precision == PP_FP8 && status == PP_UNSUPPORTED)
            print_message("no FP8 products: %s\n", pp_message());
        else
            PP_TRY(status);
    }
    fprintf(stderr, "%s\n", backend->describe(parity_devices[PP_FP32].device));
    return PP_OK;
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[PP_KERNELS + OTHERS] = {cmocka_unit_test(test_sums),
                                                    cmocka_unit_test(test_clip),
                                                    cmocka_unit_test(parity_draw),
                                                    cmocka_unit_test(parity_relu_not_a_number),
                                                    cmocka_unit_test(parity_route_not_a_number),
                                                    cmocka_unit_test(parity_loss_of_the_impossible),
                                                    cmocka_unit_test(parity_fp8_extremes),
                                                    cmocka_unit_test(test_model),
                                                    cmocka_unit_test(test_joins)};
    int kernels[PP_KERNELS];
    for (int i = 0; i < PP_KERNELS; i++) {
        kernels[i] = i;
        tests[OTHERS + i] = (struct CMUnitTest){pp_kernel_table[i].name, test_kernel, NULL, NULL, &kernels[i]};
    }
    if (argc > 1 && !filter_tests(argv[1], tests, sizeof tests / sizeof *tests)) return 2;
    const pp_status status = open_devices();
    if (status != PP_OK) {
        fprintf(stderr, "%s\n", pp_message());
        return status == PP_UNSUPPORTED ? 77 : 1;
    }
    const int failed = cmocka_run_group_tests_name("parity", tests, NULL, NULL);
    for (int precision = PP_FP32; precision < PP_PRECISIONS; precision++)
        parity_devices[precision].backend->close(parity_devices[precision].device);
    return failed ? 1 : 0;
}
