/* SPDX-License-Identifier: Apache-2.0
 *
 * What operands hold in a comparison: numbers that their meaning allows.
 */
#include "parity.h"

#include <math.h>
#include <string.h>

#include "core/calls/fp8.h"

uint16_t parity_to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x) return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float parity_from_bf16(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

/* (-1, 1) */
static float random_number(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * 0x1p-23f - 1;
}

static void fill_words(int32_t *out, int64_t n, int vocab, uint32_t *state)
{
    for (int64_t i = 0; i < n; i++) {
        const int few = vocab < 7 ? vocab : 7; /* half of the tokens are common words */
        const uint32_t x = (uint32_t)((random_number(state) + 1) * 8e8f);
        out[i] = (int32_t)(x % (uint32_t)(x / 16 % 2 ? few : vocab));
    }
}

#define AT(operands, operand) (int)PP_OPERAND(operands, operand)
#define DIM(dims, dim) (int)(offsetof(struct pp_##dims##_dims, dim) / sizeof(int32_t))

/* Operands that say where something is: less than n[range]. other: times this one, unless it is 0. */
static const struct {
    int kernel, operand, range, other;
} indexes[] = {{PP_KERNEL_DISPATCH, AT(dispatch, holds), DIM(places, tokens), DIM(places, chosen)},
               {PP_KERNEL_COMBINE, AT(combine, places), DIM(combine, places), 0},
               {PP_KERNEL_WEIGH, AT(weigh, holds), DIM(places, tokens), DIM(places, chosen)},
               {PP_KERNEL_WEIGH_GRAD, AT(weigh_grad, places), DIM(places, places), 0},
               {PP_KERNEL_ROUTE_GRAD, AT(route_grad, choices), DIM(route_grad, experts), 0}};

/* No number twice: of the operand, but of choices of experts in a token. Some numbers are no index. */
static bool fill_indexes(int32_t *out, int64_t n, const struct pp_call *call, int i)
{
    static const int32_t none[] = {-1, INT32_MIN, INT32_MAX};
    size_t k = 0;
    while (k < sizeof indexes / sizeof *indexes && (indexes[k].kernel != call->kernel || indexes[k].operand != i)) k++;
    if (k == sizeof indexes / sizeof *indexes) return false;
    const int64_t other = indexes[k].other ? call->n[indexes[k].other] : 1, range = call->n[indexes[k].range] * other,
                  alike = call->kernel == PP_KERNEL_ROUTE_GRAD ? call->route_grad.chosen : n,
                  numbers = (range > alike ? range : alike) * 6 / 5 + 1;
    for (int64_t at = 0; at < n; at++) {
        const int64_t number = (at * 7919 + 13) % numbers; /* a prime */
        out[at] = number < range ? (int32_t)number : number == range ? (int32_t)range : none[at % 3];
    }
    return true;
}

/* Rows of logits, of which some have equal ones. */
static void fill_logits(float *logits, int experts, int64_t rows)
{
    for (int64_t row = 0; row < rows; row += 2)
        for (int e = 0; e < experts; e++) logits[row * experts + e] = floorf(logits[row * experts + e] * 8) / 4;
}

/* Rows of probabilities, some of them marked as dropped. */
static void fill_probabilities(float *p, const struct pp_attention_dims *n, bool drop, uint32_t *state)
{
    const int64_t rows = (int64_t)n->rows * n->heads * n->seq;
    const int seq = n->seq;
    for (int64_t row = 0; row < rows; row++, p += seq) {
        const int query = (int)(row % seq), open = n->causal ? query + 1 : seq,
                  begin = n->window && query >= n->window ? query + 1 - n->window : 0;
        float sum = 0;
        for (int j = 0; j < seq; j++) sum += p[j] = j >= begin && j < open ? 1.1f + random_number(state) : 0;
        for (int j = 0; j < open; j++)
            p[j] *= (drop && random_number(state) < 2 * PARITY_PROBABILITY - 1 ? -1 : 1) / sum;
    }
}

/* Operands whose numbers are spread otherwise: shift + scale * (-1, 1). An activation's input reaches both its ends. */
static const struct {
    int kernel, operand;
    float shift, scale;
} spreads[] = {{PP_KERNEL_LAYERNORM_GRAD, 2, 1, 0.5f},
               {PP_KERNEL_RMSNORM_GRAD, 2, 1, 0.5f},
               {PP_KERNEL_LATENT_NORM_GRAD, 1, 1, 0.5f},
               {PP_KERNEL_GELU, 1, 0, 6},
               {PP_KERNEL_GELU_GRAD, 1, 0, 6},
               {PP_KERNEL_SWIGLU, 1, 0, 8},
               {PP_KERNEL_SWIGLU_GRAD, 0, 0, 8},
               {PP_KERNEL_SIGMOID, 0, 0, 8},
               {PP_KERNEL_SIGMOID_GRAD, 2, 0.5f, 0.4f},
               {PP_KERNEL_ROUTE_GRAD, 2, 1, 0.9f},
               {PP_KERNEL_ROUTE_GRAD, 4, 0.5f, 0.4f},
               {PP_KERNEL_ROUTE_GRAD, 5, 20, 20}, /* counts */
               {PP_KERNEL_WEIGH_GRAD, 3, 0.5f, 0.4f},
               {PP_KERNEL_MERGE, AT(merge, lse), 0, 6},
               {PP_KERNEL_MERGE, AT(merge, part_lse), 0, 6},
               {PP_KERNEL_CROSS_ENTROPY_JOIN, 4, 1.5f, 0.5f},
               {PP_KERNEL_GEMM_FP8, AT(gemm_fp8, scale_a), 1, 0.5f},
               {PP_KERNEL_GEMM_FP8, AT(gemm_fp8, scale_b), 1, 0.5f},
               {PP_KERNEL_TO_FP8, AT(to_fp8, amax), 0.7f, 0.2f}}; /* less than some numbers */

/* What the operand's meaning asks of a number. */
static float within_range(const struct pp_call *call, int i, float x)
{
    const int kernel = call->kernel;
    for (size_t k = 0; k < sizeof spreads / sizeof *spreads; k++)
        if (kernel == spreads[k].kernel && i == spreads[k].operand) return spreads[k].shift + spreads[k].scale * x;
    const bool adamw = kernel == PP_KERNEL_ADAMW || kernel == PP_KERNEL_ADAMW_BF16;
    if (adamw && i == PP_OPERAND(step, v)) return fabsf(x); /* a mean of squares */
    if (kernel == PP_KERNEL_RELU_GRAD && i == PP_OPERAND(relu_grad, u)) return x > 0 ? x : 0;
    if (kernel == PP_KERNEL_FLASH_GRAD && i == PP_OPERAND(flash_grad, lse))
        return x + logf((float)PP_SEEN_KEYS(&call->attention)); /* rows of P add up to about 1 */
    return x;
}

/* Codes of FP8, as operand i of the call has them. */
static void fill_codes(uint8_t *out, int64_t n, const struct pp_call *call, int i, uint32_t *state)
{
    const bool gradient = call->kernel == PP_KERNEL_GEMM_FP8 && i == AT(gemm_fp8, a) && call->gemm.gradient;
    for (int64_t k = 0; k < n; k++) out[k] = pp_fp8(4 * random_number(state), gradient);
}

static int words_of(const struct pp_call *call, const struct pp_frame *frame)
{
    if (call->kernel == PP_KERNEL_CROSS_ENTROPY) return call->loss.vocab;
    const bool embeds = call->kernel == PP_KERNEL_EMBED || call->kernel == PP_KERNEL_EMBED_GRAD;
    return embeds ? call->embed.vocab * pp_frame_tensor(frame) : call->loss.whole;
}

int64_t parity_elements(const struct pp_call *call, int i, const struct pp_frame *frame)
{
    const bool learned = call->kernel == PP_KERNEL_EMBED && i == PP_OPERAND(embed, positions);
    return pp_call_operand(call, i).elements * (learned ? pp_frame_context(frame) : 1);
}

bool parity_writes_all(const struct pp_call *call, int i)
{
    const bool between = call->kernel == PP_KERNEL_ADD_COLUMNS && call->columns.to_pitch > call->columns.width;
    return pp_call_operand(call, i).use == PP_USE_WRITE && !between;
}

void parity_fill(void *out, const struct pp_call *call, int i, const struct pp_frame *frame)
{
    const struct pp_operand info = pp_call_operand(call, i);
    const int kernel = call->kernel, *shape = call->n;
    const int64_t n = parity_elements(call, i, frame);
    uint32_t state = (uint32_t)(i + 1) * 2654435761u;
    if (info.type == PP_TYPE_INT32) {
        if (!fill_indexes(out, n, call, i)) fill_words(out, n, words_of(call, frame), &state);
        return;
    }
    if (info.type == PP_TYPE_FP8) return fill_codes(out, n, call, i, &state);
    float *x = out;
    for (int64_t k = 0; k < n; k++) x[k] = random_number(&state);
    if (kernel == PP_KERNEL_ROUTE && i == 0) fill_logits(x, shape[2], n / shape[2]);
    for (int64_t k = 0; k < n && kernel == PP_KERNEL_WEIGH_GRAD && i == 3; k += 5) x[k] = -1.25f; /* becomes 0 */
    if (kernel == PP_KERNEL_ATTENTION_GRAD && i == 1) fill_probabilities(x, &call->attention, frame->training, &state);
    for (int64_t k = 0; k < n; k++) {
        x[k] = within_range(call, i, x[k]);
        if (info.element_bytes == 2) x[k] = parity_from_bf16(parity_to_bf16(x[k]));
    }
}

double parity_root_mean_square(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    return sqrt(sum / (double)n);
}
