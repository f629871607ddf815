/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of programs: the keys of measured task times.
 */
#include "core/base/text.h"
#include "core/model/task_names.h"
#include "core/options/options.h"
#include "kernels/model_program.h"

static const char *const attention_words[] = {[PP_ATTENTION_MATH] = "", [PP_ATTENTION_FLASH] = " flash"};
static const char *const norm_words[] = {[PP_NORM_LAST] = "", [PP_NORM_FIRST] = " pre"};
static const char *const normalization_words[] = {[PP_LAYERNORM] = "", [PP_RMSNORM] = " rmsnorm"};

/* tensors: of norm and step, to which a tied embedding is as large as the decoder's weight. */
static void add_vocabulary(struct pp_text *text, const struct pp_writer *w, bool tensors)
{
    const struct pp_stage *stage = w->stage;
    const int padded = pp_padded_vocab(&w->model->local);
    const bool embed = stage->embed && w->part.lowest, decode = stage->decode && w->part.highest;
    const bool pads = decode || (embed && tensors && w->model->shape.tied);
    if (embed || decode) pp_text_add(text, " v%d", w->model->shape.vocab);
    if (pads && padded != w->model->local.vocab) pp_text_add(text, "/%d", padded);
}

/* Where only the decoder lacks a bias, nothing else differs. */
static const char *bias_word(const struct pp_writer *w)
{
    const int bias = w->model->shape.bias;
    const bool decode = w->stage->decode && w->part.highest;
    return bias == PP_BIAS_LAYERS && !decode ? "" : pp_bias_words[bias];
}

/* Rotations are in all layers, and have no tensors; learnt positions are the embedding's: how many there are, the step
 * is not told by anything else. */
static void add_positions(struct pp_text *text, const struct pp_writer *w, bool tensors)
{
    const struct pp_shape *shape = &w->model->shape;
    const bool embed = w->stage->embed && w->part.lowest, rope = shape->positions == PP_POSITIONS_ROPE && !tensors;
    if (rope) pp_text_add(text, " rope");
    if (rope && pp_rotary_dim(shape) + pp_unrotated_dim(shape) < pp_head_dim(shape))
        pp_text_add(text, "%d", pp_rotary_dim(shape));
    if (shape->positions == PP_POSITIONS_LEARNED && embed) pp_text_add(text, " learned%d", shape->max_positions);
}

/* What the layers are: of whole tasks, or (their tensors alone) of norm and step. */
static void add_layer_words(struct pp_text *text, const struct pp_writer *w, bool tensors)
{
    const struct pp_shape *shape = &w->model->shape;
    const bool pre = !tensors || w->stage->decode, told = !tensors || shape->activation == PP_SWIGLU;
    if (pre) pp_text_add(text, "%s", norm_words[shape->norm]);
    pp_text_add(text, "%s%s", normalization_words[shape->normalization], shape->qk_norm ? " qknorm" : "");
    if (told && shape->activation != PP_RELU) pp_text_add(text, " %s", pp_activation_names[shape->activation]);
    pp_text_add(text, "%s", bias_word(w));
    add_positions(text, w, tensors);
}

/* " h8x96 kv2", if heads have columns of their own number; of norm and step only where tensors differ by it.
 * " h16x128+64/128 latent1536/512": of a head's query and key the columns that are not rotated and those that are, and
 * those of a value; of the latent vectors of queries (0: there is none), and of keys and values. */
static void add_heads(struct pp_text *text, const struct pp_shape *shape, bool tensors)
{
    const int kv = pp_kv_heads(shape);
    const bool fewer = kv != shape->heads;
    if (pp_shape_is_latent(shape)) {
        pp_text_add(text, " h%dx%d+%d/%d latent%d/%d", shape->heads, shape->qk_nope_head_dim, shape->qk_rope_head_dim,
                    shape->v_head_dim, shape->q_lora_rank, shape->kv_lora_rank);
        return;
    }
    if (tensors && !fewer && !shape->head_dim) return;
    pp_text_add(text, " h%d", shape->heads);
    if (shape->head_dim) pp_text_add(text, "x%d", shape->head_dim);
    if (fewer) pp_text_add(text, " kv%d", kv);
}

/* Has the part of the stage a layer with experts? */
static bool has_experts(const struct pp_writer *w)
{
    return pp_stage_layers_with_experts(w->model, w->stage, w->part.end) >
           pp_stage_layers_with_experts(w->model, w->stage, w->part.begin);
}

/* " x8k2lof2/4c1.25bs64/4", where the part has a layer with experts: 8 experts; 2 of each token ("l": with sigmoid
 * scores), from 2 of 4 groups; room for 1.25 times their even share; "b" if they are chosen with a bias; columns beside
 * them ("g": with a gate); workers that share them ("o2": whose exchanges stand beside products, in up to two pieces).
 * " x8bs64/4" of norm and step. */
static void add_experts(struct pp_text *text, const struct pp_writer *w, bool tensors)
{
    const struct pp_shape *shape = &w->model->shape;
    const int pieces = tensors ? 0 : pp_shape_exchange_pieces(shape);
    char factor[PP_REAL_BYTES];
    if (!has_experts(w)) return;
    pp_text_add(text, " x%d", shape->experts);
    if (!tensors) {
        pp_text_add(text, "k%d%s", shape->experts_per_token, shape->sigmoid_scores ? "l" : "");
        if (pp_shape_expert_groups(shape)) pp_text_add(text, "of%d/%d", shape->groups_per_token, shape->expert_groups);
        pp_text_add(text, "c%s", pp_real_text(shape->capacity_factor, factor));
    }
    if (shape->expert_bias) pp_text_add(text, "b");
    if (shape->shared_ff) pp_text_add(text, "s%d%s", shape->shared_ff, shape->shared_gate ? "g" : "");
    if (pp_shape_expert_parallel(shape) > 1) {
        pp_text_add(text, "/%d", shape->expert_parallel);
        if (pieces) pp_text_add(text, "o%d", pieces);
    }
}

/* " dense3/2ff800", where the part has layers with experts and layers without: so many come before the first layer with
 * experts, which every second one has from there on. */
static void add_dense(struct pp_text *text, const struct pp_writer *w)
{
    const struct pp_shape *shape = &w->model->shape;
    const int first = w->stage->first_layer + w->part.begin, end = w->stage->first_layer + w->part.end;
    const int layers = end - first, experts = pp_layers_with_experts(shape, end) - pp_layers_with_experts(shape, first);
    int before = 0;
    if (experts == 0 || experts == layers) return;
    while (!pp_layer_has_experts(shape, first + before)) before++;
    pp_text_add(text, " dense%d", before);
    if (before + experts < layers) pp_text_add(text, "/%d", shape->experts_every);
    pp_text_add(text, "ff%d", shape->dense_ff ? shape->dense_ff : shape->d_ff);
}

static void add_workers(struct pp_text *text, const struct pp_shape *shape, bool tensors)
{
    const int parts = pp_shape_tensor(shape);
    if (parts > 1) pp_text_add(text, " tp%d%s", parts, pp_shape_parts_tokens(shape) ? " sp" : "");
    if (parts > 1 && shape->sum_pieces > 1 && !tensors) pp_text_add(text, "/%d", shape->sum_pieces);
    if (pp_shape_context(shape) > 1 && !tensors)
        pp_text_add(text, " cp%d%s", shape->context, pp_shape_context_words(shape));
}

/* " window4096", where some layer of the program has a window that hides keys. Behind it stands which layers have none,
 * counted from 1 within the program: " full3" is one layer, " full3/6" the third and each sixth after it. */
static void add_window(struct pp_text *text, const struct pp_writer *w)
{
    const struct pp_shape *shape = &w->model->shape;
    const int skip = shape->window_skip, n = w->part.end - w->part.begin,
              before = w->stage->first_layer + w->part.begin, first = skip ? skip - before % skip : n + 1;
    if (!shape->window || shape->window >= w->row_seq || (first == 1 && n == 1) || n == 0) return;
    pp_text_add(text, " window%d", shape->window);
    if (first <= n) pp_text_add(text, " full%d", first);
    if (first + skip <= n) pp_text_add(text, "/%d", skip);
}

/* What a backward makes again, beside what it does. */
static void add_again(struct pp_text *text, const struct pp_writer *w, int kind)
{
    const int end = w->slot.again < w->part.end ? w->slot.again : w->part.end, n = end - w->part.begin;
    /* of I nothing but what experts' routers need */
    if (kind != PP_F && (kind != PP_I || has_experts(w)) && w->slot.activation_again)
        pp_text_add(text, " activation");
    else if (kind == PP_B && n > 0)
        pp_text_add(text, " again%d", n);
    else if (w->checkpoints)
        pp_text_add(text, " layers");
    if (w->clears) pp_text_add(text, " clears %d", pp_shape_parts(&w->model->shape, PP_DENSE));
}

/* "B 2l+emb writes d200". part: an F or R whose input is where the part before it left it; writes: gradients, to which
 * the same task of other microbatches adds. */
static void add_layers(struct pp_text *text, const struct pp_writer *w, int kind)
{
    const bool embed = w->stage->embed && w->part.lowest, decode = w->stage->decode && w->part.highest;
    const bool forward = kind == PP_F || kind == PP_R;
    const bool writes = !w->adds && pp_makes_gradients(kind);
    pp_text_add(text, "%s %dl%s%s%s%s%s%s d%d", pp_kinds[kind].name, w->part.end - w->part.begin, embed ? "+emb" : "",
                decode ? "+dec" : "", forward && !w->part.lowest ? " part" : "", w->rounds ? " rounds" : "",
                writes ? " writes" : "", w->training ? "" : " eval", w->model->shape.d_model);
}

/* What the attention of a whole task works on, and what is drawn in it. */
static void add_attention(struct pp_text *text, const struct pp_writer *w)
{
    const struct pp_shape *shape = &w->model->shape;
    pp_text_add(text, " %s", shape->mask == PP_MASK_CAUSAL ? "causal" : "full");
    add_window(text, w);
    pp_text_add(text, "%s", attention_words[shape->attention]);
    if (pp_writer_drops(w)) pp_text_add(text, " p%g%s", shape->dropout, shape->residual_only ? "r" : "");
}

/* Of norm and step, beside their tensors. */
static void add_step(struct pp_text *text, const struct pp_writer *w, int kind)
{
    const struct pp_shape *shape = &w->model->shape;
    const bool tied = shape->tied && (w->stage->embed || w->stage->decode); /* a copy, or what it is a copy of */
    if (tied) pp_text_add(text, " tied");
    if (kind == PP_STEP && shape->optimizer != PP_SGD) pp_text_add(text, " %s", pp_optimizers[shape->optimizer].name);
    if (shape->zero) pp_text_add(text, " zero 1/%d", shape->replicas);
}

/* "B 2l+emb d200 h2 ff200 causal p0.2 seq35 rows5": what the work depends on, and nothing else. The rows stand at the
 * end: between shapes that differ in nothing else, times are interpolated. */
pp_status pp_write_signature(const struct pp_writer *w, int kind)
{
    const struct pp_shape *shape = &w->model->shape;
    struct pp_text text = pp_text_in(w->out->signature, sizeof w->out->signature);
    const bool tensors = kind == PP_NORM || kind == PP_STEP || pp_keeps_shards(kind);
    add_layers(&text, w, kind);
    add_heads(&text, shape, tensors);
    pp_text_add(&text, " ff%d", pp_shape_of_kind(shape, has_experts(w) ? PP_LAYER_EXPERTS : PP_LAYER_DENSE).d_ff);
    add_experts(&text, w, tensors);
    add_dense(&text, w);
    add_vocabulary(&text, w, tensors);
    add_workers(&text, shape, tensors);
    if (!tensors) add_attention(&text, w);
    if (shape->precision != PP_FP32) pp_text_add(&text, " %s", pp_precision_names[shape->precision]);
    add_layer_words(&text, w, tensors);
    if (tensors)
        add_step(&text, w, kind);
    else
        add_again(&text, w, kind);
    if (!tensors) pp_text_add(&text, " seq%d" PP_NAME_ROWS "%d", w->row_seq, w->rows);
    if (pp_text_fits(&text)) return PP_OK;
    return pp_fail(PP_INTERNAL, "a program's name has %zu characters: raise PP_SIGNATURE_BYTES", text.used);
}
