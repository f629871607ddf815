/* SPDX-License-Identifier: Apache-2.0
 *
 * One call on the device and on the cpu. On the device all operands lie in one allocation with gaps between them; what
 * the call must overwrite, and the gaps, are filled with a poison that differs from run to run. So an element that is
 * not written, or a byte that should not have been, shows.
 */
#include "parity.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cuda/attention_tiles.h"

enum {
    ALIGNMENT = 256,
    SUMS = 8,
    RUNS = 2,
    TEXT = 192,
    /* Operands lie behind their regions' bases by these: offset + ACT_ROW * ROW_BYTES. */
    OFFSET = 32,
    ACT_ROW = 3,
    ROW_BYTES = 16,
    BEHIND = OFFSET + ACT_ROW * ROW_BYTES
};

static const float clip = 0.5f;

/* An operand; host: the cpu's, float, int32_t or codes of FP8. */
struct operand {
    struct pp_operand info;
    bool present, poisoned, written, scratch;
    int64_t at, bytes; /* in the device's memory */
    void *host;
};

/* One call in one variant. */
struct run {
    const struct parity_device *d;
    const struct parity_case *c;
    const struct parity_kernel *kernel;
    unsigned variant;
    struct pp_call call;
    struct pp_frame frame;
    struct operand operand[PP_CALL_REFS];
    int64_t clip_at, loss_at, sums_at, bytes;
    double loss, sums[SUMS];       /* the cpu's */
    char *given[RUNS], *got[RUNS]; /* the device's memory before and after */
    char text[TEXT];
};

static void *memory(int64_t bytes)
{
    void *out = calloc(1, bytes > 0 ? (size_t)bytes : 1);
    assert_non_null(out);
    return out;
}

/* ---- the call ---- */

/* To 2 bytes: programs pad what they can, and cuBLAS need not have an algorithm for it. */
static bool is_badly_aligned(const struct run *r)
{
    const struct pp_gemm_dims *n = &r->call.gemm;
    return pp_kernel_is_product(r->call.kernel) && r->d->precision == PP_BF16 &&
           (r->variant & PARITY_SHIFT || (n->m | n->n | n->k) % 2);
}

/* A gradient, which the call overwrites unless it adds. */
static bool is_gradient(const struct pp_call *call, int i, const struct pp_operand *info)
{
    if (pp_kernel_is_product(call->kernel)) return i == 0 && call->gemm.mode == PP_GEMM_GRADIENT;
    return info->type == PP_TYPE_FLOAT && info->use == PP_USE_BOTH && strstr(info->name, "grad");
}

/* Must the call write all of the operand, whatever it held? A copy from nowhere writes nothing. */
static bool is_overwritten(const struct run *r, int i)
{
    const struct pp_operand *info = &r->operand[i].info;
    if (is_gradient(&r->call, i, info)) return !(r->variant & PARITY_ADD);
    return parity_writes_all(&r->call, i) && !(r->call.kernel == PP_KERNEL_COPY && r->variant & PARITY_ABSENT);
}

static void make_call(struct run *r)
{
    const struct parity_case *c = r->c;
    r->call = parity_call_of(c);
    r->call.site = 7;
    r->call.precision = r->d->precision;
    r->call.adds = r->variant & PARITY_ADD;
    r->call.p = r->kernel->variants & PARITY_DROP ? PARITY_PROBABILITY : 0;
    r->call.scale = c->f; /* or whatever the kernel calls it */
    if (c->kernel == PP_KERNEL_ROUTE || c->kernel == PP_KERNEL_ROUTE_GRAD)
        r->call.routing = (struct pp_route_scalars){2.5f, c->f, c->groups, c->picked};
    if (c->scaled) r->call.turns = (struct pp_rope_scalars){c->f, 8, 1, 4, 16, 1.25f, c->scaled - 1, 1};
    r->frame = (struct pp_frame){.seed = 0x123456789abcdef0u,
                                 .step = 3,
                                 .act_row = ACT_ROW,
                                 .first_row = 123456789, /* times seq: beyond 32 bits */
                                 .training = r->variant & PARITY_DROP,
                                 .loss_scale = 1.0f / 64,
                                 .learning_rate = 0.25f,
                                 .tokens = 10,
                                 .adamw = {0.9f, 0.25f, 0.75f, 0.125f, 0.5f, 0.7f, 0.01f},
                                 .clip_factor = clip,
                                 .tensor = c->tensor,
                                 .tensor_rank = c->tensor_rank,
                                 .context = c->context,
                                 .context_rank = c->context_rank,
                                 .halves = c->halves};
    char name[96], rank[24] = "", context[36] = "";
    if (c->tensor) snprintf(rank, sizeof rank, " rank %d", c->tensor_rank);
    if (c->context)
        snprintf(context, sizeof context, " context %d/%d%s", c->context_rank, c->context, c->halves ? " halves" : "");
    snprintf(r->text, sizeof r->text, "%s%s%s%s%s%s%s%s", pp_call_text(&r->call, name, sizeof name),
             r->variant & PARITY_DROP ? " training" : "", r->variant & PARITY_ADD ? " adds" : "",
             r->variant & PARITY_ALIAS ? " alias" : "", r->variant & PARITY_ABSENT ? " absent" : "",
             r->variant & PARITY_SHIFT ? " shift" : "", rank, context);
}

static int64_t place(struct run *r, int64_t bytes, int64_t shift)
{
    const int64_t at = (r->bytes + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + shift;
    r->bytes = at + bytes;
    return at;
}

/* Does operand i lie where another does? */
static bool is_alias(const struct run *r, int i)
{
    return r->variant & PARITY_ALIAS && i == r->kernel->alias[r->c->whole][0];
}

static bool is_absent(const struct run *r, int i)
{
    const char *name = pp_call_operand(&r->call, i).name;
    return !name || (r->variant & PARITY_ABSENT && i == r->kernel->absent) ||
           (r->kernel->partial && i == r->kernel->partial && !r->c->whole) || (r->c->bare && !strcmp(name, "bias"));
}

/* An operand of a norm or residual over a part of the tokens has room for more than there may be: what lies behind them
 * is none of the call's. Their number is never that of the columns here. */
static struct pp_operand operand_of(const struct run *r, int i)
{
    struct pp_operand o = pp_call_operand(&r->call, i);
    o.elements = parity_elements(&r->call, i, &r->frame);
    const int64_t room = (int64_t)r->call.norm.rows * r->call.norm.seq, width = r->call.norm.d;
    const bool pass = pp_kernel_is_norm(r->call.kernel) || r->call.kernel == PP_KERNEL_RESIDUAL ||
                      r->call.kernel == PP_KERNEL_RESIDUAL_GRAD;
    if (pass && r->call.norm.whole && (o.elements == room || o.elements == room * width))
        o.elements = o.elements / room * pp_call_tokens(&r->call, &r->frame).n;
    return o;
}

/* What a call does with an operand depends on which others it has. */
static void choose_operands(struct run *r)
{
    for (int i = 0; i < PP_CALL_REFS; i++) {
        r->operand[i].present = !is_absent(r, i);
        if (r->operand[i].present) r->call.ref[i] = (struct pp_ref){1 + i, 0, OFFSET, ROW_BYTES};
    }
    for (int i = 0; i < PP_CALL_REFS; i++) r->operand[i].info = operand_of(r, i);
}

static void place_operands(struct run *r)
{
    choose_operands(r);
    for (int i = 0; i < PP_CALL_REFS; i++) {
        struct operand *o = &r->operand[i];
        if (!o->present) continue;
        o->scratch = !strcmp(o->info.name, "scratch");
        o->written = o->info.use & PP_USE_WRITE;
        o->poisoned = is_overwritten(r, i);
        o->bytes = o->info.elements * o->info.element_bytes;
        if (is_alias(r, i)) continue;
        o->at = place(r, o->bytes, r->variant & PARITY_SHIFT && !o->scratch ? o->info.element_bytes : 0);
        o->host = memory(parity_elements(&r->call, i, &r->frame) * (int64_t)sizeof(float));
        parity_fill(o->host, &r->call, i, &r->frame);
    }
    if (r->variant & PARITY_ALIAS) {
        const int *alias = r->kernel->alias[r->c->whole];
        struct operand *o = &r->operand[alias[0]], *other = &r->operand[alias[1]];
        o->at = other->at;
        o->host = other->host;
        o->poisoned = false;
        other->written = true;
    }
    r->clip_at = place(r, sizeof(float), 0);
    r->loss_at = place(r, sizeof(double), 0);
    r->sums_at = place(r, sizeof(double) * SUMS, 0);
    place(r, 0, 0);
}

/* The device's memory before the call. */
static char *make_image(const struct run *r, int poison)
{
    char *image = memory(r->bytes);
    memset(image, poison, (size_t)r->bytes);
    for (int i = 0; i < PP_CALL_REFS; i++) {
        const struct operand *o = &r->operand[i];
        if (!o->present || o->poisoned) continue;
        for (int64_t k = 0; k < o->info.elements; k++) {
            const int bytes = o->info.element_bytes;
            const uint16_t half = bytes == 2 ? parity_to_bf16(((float *)o->host)[k]) : 0;
            memcpy(image + o->at + k * bytes,
                   bytes == 2 ? (const void *)&half : (const char *)o->host + k * (bytes == 1 ? 1 : 4), (size_t)bytes);
        }
    }
    memcpy(image + r->clip_at, &clip, sizeof clip);
    return image;
}

/* False: the device does not offer this call, and need not. */
static bool run_device(struct run *r, int poison, char **given, char **got)
{
    const struct parity_device *d = r->d;
    struct pp_frame frame = r->frame;
    void *base;
    *given = make_image(r, poison);
    *got = memory(r->bytes);
    PARITY_OK(d->backend->alloc(d->device, r->bytes, &base));
    char *at = base;
    for (int i = 0; i < PP_CALL_REFS; i++) frame.base[1 + i] = at + r->operand[i].at - BEHIND;
    frame.loss = (double *)(at + r->loss_at);
    frame.sums = (double *)(at + r->sums_at);
    if (!(r->variant & PARITY_ABSENT)) {
        frame.clip = (const float *)(at + r->clip_at);
        frame.clip_factor = NAN;
    }
    PARITY_OK(d->backend->upload(d->device, base, *given, r->bytes));
    const pp_status status = parity_run(d, &r->call, &frame, r->variant & PARITY_SHIFT);
    const bool dispensable = status == PP_UNSUPPORTED && is_badly_aligned(r);
    if (dispensable)
        print_message("%s: not offered: %s\n", r->text, pp_message());
    else if (status != PP_OK)
        fail_msg("%s: %s", r->text, pp_message());
    PARITY_OK(d->backend->download(d->device, *got, base, r->bytes));
    d->backend->release(d->device, base, r->bytes);
    return !dispensable;
}

static bool is_copy(const struct operand *o) { return o->info.type == PP_TYPE_BF16 && o->info.use == PP_USE_WRITE; }

static void run_cpu(struct run *r)
{
    struct pp_call call = r->call;
    struct pp_frame frame = r->frame;
    const struct pp_program program = {.calls = &call, .ncalls = 1};
    call.precision = PP_FP32;
    if (call.kernel == PP_KERNEL_ADAMW_BF16) call.kernel = PP_KERNEL_ADAMW; /* here moments are float, unrounded */
    for (int i = 0; i < PP_CALL_REFS; i++)
        if (r->operand[i].host && !is_copy(&r->operand[i])) frame.base[1 + i] = (char *)r->operand[i].host - BEHIND;
    frame.loss = &r->loss;
    frame.sums = r->sums;
    pp_cpu_run(pp_cpu_isa_best(), &program, &frame, NULL, NULL);
}

/* ---- comparison ---- */

static float device_element(const struct operand *o, const char *image, int64_t k)
{
    const char *at = image + o->at + k * o->info.element_bytes;
    uint16_t half;
    float x;
    memcpy(&half, at, sizeof half);
    if (o->info.element_bytes == 2) return parity_from_bf16(half);
    memcpy(&x, at, sizeof x);
    return x;
}

/* The bfloat16 copy of another operand, exactly: see is_copy(). */
static void check_copy(const struct run *r, const struct operand *copy, const struct operand *of)
{
    for (int64_t k = 0; k < copy->info.elements; k++) {
        const float a = device_element(copy, r->got[0], k), x = device_element(of, r->got[0], k);
        if (a != parity_from_bf16(parity_to_bf16(x)))
            fail_msg("%s: %s[%lld] is %.9g, the rounded %s is %.9g", r->text, copy->info.name, (long long)k, a,
                     of->info.name, parity_from_bf16(parity_to_bf16(x)));
    }
}

/* Indexes, or codes of FP8, of which none is NaN here. */
static void check_integers(const struct run *r, const struct operand *o)
{
    const int64_t bytes = o->info.element_bytes;
    for (int64_t k = 0; k < o->info.elements; k++) {
        int32_t a = 0, expected = 0;
        memcpy(&a, r->got[0] + o->at + k * bytes, (size_t)bytes);
        memcpy(&expected, (const char *)o->host + k * bytes, (size_t)bytes);
        if (a != expected)
            fail_msg("%s: %s[%lld] of %lld is %d, expected %d", r->text, o->info.name, (long long)k,
                     (long long)o->info.elements, a, expected);
    }
}

/* Attention of tf32 is that of fp32 where it is not on tensor cores. */
static int precision_of(const struct run *r)
{
    const bool attends = r->call.kernel == PP_KERNEL_ATTENTION || r->call.kernel == PP_KERNEL_ATTENTION_GRAD;
    return r->d->precision == PP_TF32 && attends && !pp_short_multiplies(&r->call) ? PP_FP32 : r->d->precision;
}

static void check_operand(const struct run *r, const struct operand *o)
{
    if (is_copy(o)) return check_copy(r, o, &r->operand[0]);
    if (o->info.type == PP_TYPE_INT32 || o->info.type == PP_TYPE_FP8) return check_integers(r, o);
    /* lse is float32, of scores whose factors are rounded after the bias */
    const bool rounded =
        o->info.type == PP_TYPE_ACTIVATION || r->d->precision == PP_TF32 || !strcmp(o->info.name, "lse");
    const bool biased = rounded && r->d->precision == PP_BF16 && r->kernel->biased > 0 && !r->c->bare;
    const int precision = o->info.type == PP_TYPE_BF16 ? PP_BF16 : rounded ? precision_of(r) : PP_FP32;
    const double tolerance = biased ? r->kernel->biased : r->kernel->tolerance[precision];
    const float *expected = o->host;
    const double magnitude = parity_root_mean_square(expected, o->info.elements);
    for (int64_t k = 0; k < o->info.elements; k++) {
        const double a = device_element(o, r->got[0], k), b = expected[k];
        if (!(fabs(a - b) <= tolerance * (fabs(b) + magnitude)))
            fail_msg("%s: %s[%lld] of %lld is %.9g, expected %.9g (+- %g, rms %g)", r->text, o->info.name, (long long)k,
                     (long long)o->info.elements, a, b, tolerance, magnitude);
    }
}

static void check_double(const struct run *r, const char *name, int64_t at, double expected, double tolerance)
{
    double x;
    memcpy(&x, r->got[0] + at, sizeof x);
    if (!(fabs(x - expected) <= tolerance * fabs(expected)))
        fail_msg("%s: %s is %.17g, expected %.17g", r->text, name, x, expected);
}

static bool has_loss(const struct run *r)
{
    return r->call.kernel == PP_KERNEL_CROSS_ENTROPY || r->call.kernel == PP_KERNEL_CROSS_ENTROPY_JOIN;
}

/* Marks what the call may write in a map of the device's memory. */
static char *writable_bytes(const struct run *r)
{
    char *map = memory(r->bytes);
    for (int i = 0; i < PP_CALL_REFS; i++) {
        const struct operand *o = &r->operand[i];
        if (o->present && o->written) memset(map + o->at, o->scratch ? 2 : 1, (size_t)o->bytes);
    }
    if (has_loss(r)) memset(map + r->loss_at, 1, sizeof(double));
    if (r->call.kernel == PP_KERNEL_SUMSQ) memset(map + r->sums_at + 8 * r->call.sumsq.index, 1, sizeof(double));
    return map;
}

/* Nothing else was written, and both runs wrote the same. */
static void check_bytes(const struct run *r)
{
    char *map = writable_bytes(r);
    for (int64_t i = 0; i < r->bytes; i++) {
        for (int k = 0; k < RUNS; k++)
            if (!map[i] && r->got[k][i] != r->given[k][i])
                fail_msg("%s: byte %lld was written, which belongs to no result", r->text, (long long)i);
        if (map[i] == 1 && r->got[0][i] != r->got[1][i])
            fail_msg("%s: byte %lld differs from run to run, or was not written", r->text, (long long)i);
    }
    free(map);
}

static void check(const struct run *r)
{
    check_bytes(r);
    for (int i = 0; i < PP_CALL_REFS; i++) {
        const struct operand *o = &r->operand[i];
        if (o->present && o->written && !o->scratch) check_operand(r, o);
    }
    if (has_loss(r)) check_double(r, "the loss", r->loss_at, r->loss, r->kernel->tolerance[PP_FP32]);
    if (r->call.kernel == PP_KERNEL_SUMSQ)
        check_double(r, "the sum", r->sums_at + 8 * r->call.sumsq.index, r->sums[r->call.sumsq.index],
                     r->kernel->tolerance[PP_FP32]);
}

bool parity_call(const struct parity_device *d, const struct parity_case *c, unsigned variant)
{
    static const int poison[RUNS] = {0xff, 0x5a}; /* not a number, and a large one */
    struct run r = {.d = d, .c = c, .kernel = &parity_kernels[c->kernel], .variant = variant};
    make_call(&r);
    place_operands(&r);
    bool ran = true;
    for (int k = 0; k < RUNS; k++) ran = run_device(&r, poison[k], &r.given[k], &r.got[k]) && ran;
    run_cpu(&r);
    if (ran) check(&r);
    for (int k = 0; k < RUNS; k++) {
        free(r.given[k]);
        free(r.got[k]);
    }
    for (int i = 0; i < PP_CALL_REFS; i++)
        if (!is_alias(&r, i)) free(r.operand[i].host);
    return ran;
}
