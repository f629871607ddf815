/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of calls: the keys of kernels' times.
 */
#include "core/base/text.h"
#include "kernels/kernels.h"

/* What a norm, or its gradient, is beside its usual work. */
static void add_norm(const struct pp_call *call, struct pp_text *text)
{
    static const char *const words[2][2] = {{"", " sum"}, {" plain", " plain sum"}};
    const bool back = call->kernel == PP_KERNEL_LAYERNORM_GRAD || call->kernel == PP_KERNEL_RMSNORM_GRAD;
    const struct pp_ref *made = back ? &call->at.norm_grad.dr : &call->at.norm.y,
                        *sum = back ? &call->at.norm_grad.add : &call->at.norm.sum;
    if (made->region == PP_MEM_NONE)
        pp_text_add(text, " unsent"); /* then there is no sum, nor is it plain */
    else
        pp_text_add(text, "%s", words[call->norm.plain != 0][sum->region != PP_MEM_NONE]);
}

static void add_heads(const struct pp_call *call, struct pp_text *text)
{
    const struct pp_attention_dims *n = &call->attention;
    const int kv = PP_KV_HEADS(n);
    if (kv != n->heads) pp_text_add(text, " kv%d", kv);
    if (n->keys) pp_text_add(text, " of%d", n->keys);
    if (n->window) pp_text_add(text, " w%d", n->window);
    if (n->dv) pp_text_add(text, " v%d", n->dv);
    if (pp_call_lacks_bias(call) && !n->keys) pp_text_add(text, " plain");
}

static void add_adds(const struct pp_call *call, struct pp_text *text)
{
    if (call->columns.adds) pp_text_add(text, " adds");
}

static void add_rope(const struct pp_call *call, struct pp_text *text)
{
    const struct pp_rope_dims *n = &call->rope;
    if (PP_KV_HEADS(n) != n->heads) pp_text_add(text, " kv%d", PP_KV_HEADS(n));
    if (n->columns) pp_text_add(text, " turn%d", n->columns);
    if (n->columns && n->still) pp_text_add(text, "/%d", n->still);
    if (n->dv) pp_text_add(text, " v%d", n->dv);
    if (pp_call_lacks_bias(call)) pp_text_add(text, " plain");
}

static void add_product(const struct pp_call *call, struct pp_text *text)
{
    if (call->gemm.times) pp_text_add(text, " times%d", call->gemm.times);
    if (call->gemm.gradient) pp_text_add(text, " e5m2");
}

static void add_fp8(const struct pp_call *call, struct pp_text *text)
{
    static const char *const forms[2][2] = {{"", ""}, {" turned", " both"}};
    const bool made = call->kernel == PP_KERNEL_TO_FP8;
    const bool turned = made && call->at.to_fp8.turned.region != PP_MEM_NONE,
               straight = made && call->at.to_fp8.q.region != PP_MEM_NONE;
    if (call->fp8.times) pp_text_add(text, " times%d", call->fp8.times);
    pp_text_add(text, "%s%s", call->fp8.gradient ? " e5m2" : "", forms[turned][straight]);
}

static void add_route(const struct pp_call *call, struct pp_text *text)
{
    const struct pp_route_scalars *scalars = &call->routing;
    if (call->route.rules & PP_ROUTE_SIGMOID) pp_text_add(text, " sigmoid");
    if (scalars->groups) pp_text_add(text, " of%d/%d", scalars->picked, scalars->groups);
    if (call->at.route.bias.region != PP_MEM_NONE) pp_text_add(text, " biased");
}

static void add_route_grad(const struct pp_call *call, struct pp_text *text)
{
    if (call->route_grad.rules & PP_ROUTE_SIGMOID) pp_text_add(text, " sigmoid");
}

static void add_bias(const struct pp_call *call, struct pp_text *text)
{
    if (pp_call_lacks_bias(call)) pp_text_add(text, " nobias");
}

/* Queries, keys and values in pieces, or keys and values alone. */
static void add_pieces(const struct pp_call *call, struct pp_text *text)
{
    if (call->pieces.values) pp_text_add(text, " v%d", call->pieces.values);
    add_bias(call, text);
}

static void add_embed(const struct pp_call *call, struct pp_text *text)
{
    static const char *const by_positions[] = {
        [PP_POSITIONS_SINUSOIDAL] = "", [PP_POSITIONS_ROPE] = " plain", [PP_POSITIONS_LEARNED] = " learned"};
    pp_text_add(text, "%s", by_positions[call->embed.positions]);
}

static void add_activation(const struct pp_call *call, struct pp_text *text)
{
    if (call->activation.tanh) pp_text_add(text, " tanh");
    add_bias(call, text);
}

/* Kernels whose calls have words of their own. */
static void (*const words_by_kernel[PP_KERNELS])(const struct pp_call *call,
                                                 struct pp_text *text) = {[PP_KERNEL_GEMM_NT] = add_product,
                                                                          [PP_KERNEL_GEMM_NN] = add_product,
                                                                          [PP_KERNEL_GEMM_TN] = add_product,
                                                                          [PP_KERNEL_GEMM_FP8] = add_product,
                                                                          [PP_KERNEL_AMAX] = add_fp8,
                                                                          [PP_KERNEL_TO_FP8] = add_fp8,
                                                                          [PP_KERNEL_ATTENTION] = add_heads,
                                                                          [PP_KERNEL_ATTENTION_GRAD] = add_heads,
                                                                          [PP_KERNEL_FLASH] = add_heads,
                                                                          [PP_KERNEL_FLASH_GRAD] = add_heads,
                                                                          [PP_KERNEL_ADD_COLUMNS] = add_adds,
                                                                          [PP_KERNEL_QK_NORM] = add_heads,
                                                                          [PP_KERNEL_QK_NORM_GRAD] = add_heads,
                                                                          [PP_KERNEL_ROPE] = add_rope,
                                                                          [PP_KERNEL_ROPE_GRAD] = add_rope,
                                                                          [PP_KERNEL_TO_PIECES] = add_pieces,
                                                                          [PP_KERNEL_FROM_PIECES] = add_pieces,
                                                                          [PP_KERNEL_COPY_KEYS] = add_pieces,
                                                                          [PP_KERNEL_SUM_KEYS] = add_pieces,
                                                                          [PP_KERNEL_ROUTE] = add_route,
                                                                          [PP_KERNEL_ROUTE_GRAD] = add_route_grad,
                                                                          [PP_KERNEL_EMBED] = add_embed,
                                                                          [PP_KERNEL_GELU] = add_activation,
                                                                          [PP_KERNEL_GELU_GRAD] = add_activation};

/* What tells calls of one shape apart. */
static void add_words(const struct pp_call *call, struct pp_text *text)
{
    if (pp_kernel_is_norm(call->kernel))
        add_norm(call, text);
    else if (words_by_kernel[call->kernel])
        words_by_kernel[call->kernel](call, text);
    else
        add_bias(call, text);
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
    const bool exchanges = call->kernel == PP_KERNEL_ALL_TO_ALL || call->kernel == PP_KERNEL_SHIFT;
    const bool wide = pp_kernel_is_product(call->kernel)     ? call->gemm.wide
                      : call->kernel == PP_KERNEL_ALL_REDUCE ? call->join.wide
                                                             : exchanges && call->exchange.wide;
    return wide && call->precision == PP_BF16;
}

const char *pp_call_text(const struct pp_call *call, char *buf, size_t size)
{
    const struct pp_kernel_info *info = &pp_kernel_table[call->kernel];
    struct pp_text text = pp_text_in(buf, size);
    pp_text_add(&text, "%s ", info->name);
    for (int i = 0; i < info->named; i++) pp_text_add(&text, i ? "x%d" : "%d", call->n[i]);
    if (is_padded(call)) pp_text_add(&text, "/%d", call->loss.columns);
    add_words(call, &text);
    if (!call->adds && pp_call_again_bytes(call) != 0) pp_text_add(&text, " writes");
    if (call->site) pp_text_add(&text, " drop");
    if (call->precision != PP_FP32)
        pp_text_add(&text, " %s%s", pp_precision_names[call->precision], is_wide(call) ? " wide" : "");
    return buf;
}
