/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of calls: the keys of kernels' times.
 */
#include <stdio.h>

#include "kernels/kernels.h"

/* What a norm, or its gradient, is beside its usual work. */
static const char *norm_words(const struct pp_call *call)
{
    static const char *const words[2][2] = {{"", " sum"}, {" plain", " plain sum"}};
    const bool back = call->kernel == PP_KERNEL_LAYERNORM_GRAD || call->kernel == PP_KERNEL_RMSNORM_GRAD;
    const struct pp_ref *made = back ? &call->at.norm_grad.dr : &call->at.norm.y,
                        *sum = back ? &call->at.norm_grad.add : &call->at.norm.sum;
    if (made->region == PP_MEM_NONE) return " unsent"; /* then there is no sum, nor is it plain */
    return words[call->norm.plain != 0][sum->region != PP_MEM_NONE];
}

static const char *heads_words(const struct pp_call *call, char *buf, size_t size)
{
    const struct pp_attention_dims *n = &call->attention;
    const int kv = PP_KV_HEADS(n);
    size_t used = kv == n->heads ? 0 : (size_t)snprintf(buf, size, " kv%d", kv);
    if (n->keys) used += (size_t)snprintf(buf + used, size - used, " of%d", n->keys);
    if (n->window) used += (size_t)snprintf(buf + used, size - used, " w%d", n->window);
    if (n->dv) used += (size_t)snprintf(buf + used, size - used, " v%d", n->dv);
    snprintf(buf + used, size - used, "%s", pp_call_lacks_bias(call) && !n->keys ? " plain" : "");
    return buf;
}

static const char *rope_words(const struct pp_call *call, char *buf, size_t size)
{
    const struct pp_rope_dims *n = &call->rope;
    char kv[16] = "", columns[32] = "", values[16] = "";
    if (PP_KV_HEADS(n) != n->heads) snprintf(kv, sizeof kv, " kv%d", PP_KV_HEADS(n));
    if (n->columns) snprintf(columns, sizeof columns, n->still ? " turn%d/%d" : " turn%d", n->columns, n->still);
    if (n->dv) snprintf(values, sizeof values, " v%d", n->dv);
    snprintf(buf, size, "%s%s%s%s", kv, columns, values, pp_call_lacks_bias(call) ? " plain" : "");
    return buf;
}

static const char *product_words(const struct pp_call *call, char *buf, size_t size)
{
    *buf = '\0';
    if (call->gemm.times) snprintf(buf, size, " times%d", call->gemm.times);
    if (call->gemm.gradient) snprintf(buf + strlen(buf), size - strlen(buf), " e5m2");
    return buf;
}

static const char *fp8_words(const struct pp_call *call, char *buf, size_t size)
{
    static const char *const forms[2][2] = {{"", ""}, {" turned", " both"}};
    const bool made = call->kernel == PP_KERNEL_TO_FP8;
    const bool turned = made && call->at.to_fp8.turned.region != PP_MEM_NONE,
               straight = made && call->at.to_fp8.q.region != PP_MEM_NONE;
    *buf = '\0';
    if (call->fp8.times) snprintf(buf, size, " times%d", call->fp8.times);
    snprintf(buf + strlen(buf), size - strlen(buf), "%s%s", call->fp8.gradient ? " e5m2" : "", forms[turned][straight]);
    return buf;
}

static const char *route_words(const struct pp_call *call, char *buf, size_t size)
{
    const struct pp_route_scalars *scalars = &call->routing;
    char groups[32] = "";
    if (scalars->groups) snprintf(groups, sizeof groups, " of%d/%d", scalars->picked, scalars->groups);
    snprintf(buf, size, "%s%s%s", call->route.rules & PP_ROUTE_SIGMOID ? " sigmoid" : "", groups,
             call->at.route.bias.region == PP_MEM_NONE ? "" : " biased");
    return buf;
}

/* Queries, keys and values in pieces, or keys and values alone. */
static const char *pieces_words(const struct pp_call *call, char *buf, size_t size)
{
    const size_t used = call->pieces.values ? (size_t)snprintf(buf, size, " v%d", call->pieces.values) : 0;
    snprintf(buf + used, size - used, "%s", pp_call_lacks_bias(call) ? " nobias" : "");
    return buf;
}

static const char *route_grad_words(const struct pp_call *call, char *buf, size_t size)
{
    snprintf(buf, size, "%s", call->route_grad.rules & PP_ROUTE_SIGMOID ? " sigmoid" : "");
    return buf;
}

static const char *embed_words(const struct pp_call *call, char *buf, size_t size)
{
    static const char *const by_positions[] = {
        [PP_POSITIONS_SINUSOIDAL] = "", [PP_POSITIONS_ROPE] = " plain", [PP_POSITIONS_LEARNED] = " learned"};
    snprintf(buf, size, "%s", by_positions[call->embed.positions]);
    return buf;
}

static const char *activation_words(const struct pp_call *call, char *buf, size_t size)
{
    snprintf(buf, size, "%s%s", call->activation.tanh ? " tanh" : "", pp_call_lacks_bias(call) ? " nobias" : "");
    return buf;
}

static const char *bias_words(const struct pp_call *call) { return pp_call_lacks_bias(call) ? " nobias" : ""; }

/* Kernels whose calls have words of their own. */
static const char *(*const words_by_kernel[PP_KERNELS])(const struct pp_call *call, char *buf, size_t size) = {
    [PP_KERNEL_GEMM_NT] = product_words,     [PP_KERNEL_GEMM_NN] = product_words,
    [PP_KERNEL_GEMM_TN] = product_words,     [PP_KERNEL_GEMM_FP8] = product_words,
    [PP_KERNEL_AMAX] = fp8_words,            [PP_KERNEL_TO_FP8] = fp8_words,
    [PP_KERNEL_ATTENTION] = heads_words,     [PP_KERNEL_ATTENTION_GRAD] = heads_words,
    [PP_KERNEL_FLASH] = heads_words,         [PP_KERNEL_FLASH_GRAD] = heads_words,
    [PP_KERNEL_QK_NORM] = heads_words,       [PP_KERNEL_QK_NORM_GRAD] = heads_words,
    [PP_KERNEL_ROPE] = rope_words,           [PP_KERNEL_ROPE_GRAD] = rope_words,
    [PP_KERNEL_TO_PIECES] = pieces_words,    [PP_KERNEL_FROM_PIECES] = pieces_words,
    [PP_KERNEL_COPY_KEYS] = pieces_words,    [PP_KERNEL_SUM_KEYS] = pieces_words,
    [PP_KERNEL_ROUTE] = route_words,         [PP_KERNEL_ROUTE_GRAD] = route_grad_words,
    [PP_KERNEL_EMBED] = embed_words,         [PP_KERNEL_GELU] = activation_words,
    [PP_KERNEL_GELU_GRAD] = activation_words};

/* What tells calls of one shape apart. */
static const char *words_of(const struct pp_call *call, char *buf, size_t size)
{
    if (pp_kernel_is_norm(call->kernel)) return norm_words(call);
    return words_by_kernel[call->kernel] ? words_by_kernel[call->kernel](call, buf, size) : bias_words(call);
}

/* Has it columns of no word? */
static bool is_padded(const struct pp_call *call)
{
    const bool entropy = call->kernel == PP_KERNEL_CROSS_ENTROPY || call->kernel == PP_KERNEL_CROSS_ENTROPY_PART ||
                         call->kernel == PP_KERNEL_CROSS_ENTROPY_JOIN;
    return entropy && call->loss.columns != call->loss.vocab;
}

/* Is its result wider than what it works on? */
static bool is_wide(const struct pp_call *call)
{
    const bool wide = pp_kernel_is_product(call->kernel)     ? call->gemm.wide
                      : call->kernel == PP_KERNEL_ALL_REDUCE ? call->join.wide
                      : call->kernel == PP_KERNEL_ALL_TO_ALL ? call->exchange.wide
                                                             : false;
    return wide && call->precision == PP_BF16;
}

const char *pp_call_text(const struct pp_call *call, char *buf, size_t size)
{
    const struct pp_kernel_info *info = &pp_kernel_table[call->kernel];
    char words[64];
    size_t used = (size_t)snprintf(buf, size, "%s ", info->name);
    for (int i = 0; i < info->named && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, i ? "x%d" : "%d", call->n[i]);
    if (is_padded(call) && used < size) used += (size_t)snprintf(buf + used, size - used, "/%d", call->loss.columns);
    if (used < size) used += (size_t)snprintf(buf + used, size - used, "%s", words_of(call, words, sizeof words));
    if (!call->adds && pp_call_again_bytes(call) != 0 && used < size)
        used += (size_t)snprintf(buf + used, size - used, " writes");
    if (call->site && used < size) used += (size_t)snprintf(buf + used, size - used, " drop");
    if (call->precision != PP_FP32 && used < size)
        snprintf(buf + used, size - used, " %s%s", pp_precision_names[call->precision], is_wide(call) ? " wide" : "");
    return buf;
}
