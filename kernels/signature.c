/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of programs: the keys of measured task times.
 */
#include <stdio.h>

#include "core/options/options.h"
#include "kernels/model_program.h"

static const char *const attention_words[] = {[PP_ATTENTION_MATH] = "", [PP_ATTENTION_FLASH] = " flash"};
static const char *const norm_words[] = {[PP_NORM_LAST] = "", [PP_NORM_FIRST] = " pre"};
static const char *const normalization_words[] = {[PP_LAYERNORM] = "", [PP_RMSNORM] = " rmsnorm"};

/* tensors: of norm and step, to which a tied embedding is as large as the decoder's weight. */
static void write_vocabulary(const struct pp_writer *w, bool tensors, char *text, size_t size)
{
    const struct pp_stage *stage = w->stage;
    const int vocab = w->model->shape.vocab, padded = pp_padded_vocab(&w->model->local);
    const bool embed = stage->embed && w->part.lowest, decode = stage->decode && w->part.highest;
    const bool pads = decode || (embed && tensors && w->model->shape.tied);
    if (embed || decode) snprintf(text, size, " v%d", vocab);
    if (pads && padded != w->model->local.vocab) snprintf(text, size, " v%d/%d", vocab, padded);
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
static void write_positions(const struct pp_writer *w, bool tensors, char *text, size_t size)
{
    const struct pp_shape *shape = &w->model->shape;
    const bool embed = w->stage->embed && w->part.lowest;
    *text = '\0';
    if (shape->positions == PP_POSITIONS_ROPE && !tensors &&
        pp_rotary_dim(shape) + pp_unrotated_dim(shape) < pp_head_dim(shape))
        snprintf(text, size, " rope%d", pp_rotary_dim(shape));
    else if (shape->positions == PP_POSITIONS_ROPE && !tensors)
        snprintf(text, size, " rope");
    if (shape->positions == PP_POSITIONS_LEARNED && embed) snprintf(text, size, " learned%d", shape->max_positions);
}

/* What the layers are: of whole tasks, or (their tensors alone) of norm and step. */
static void write_layer_words(const struct pp_writer *w, bool tensors, char *text, size_t size)
{
    const struct pp_shape *shape = &w->model->shape;
    const bool pre = !tensors || w->stage->decode, told = !tensors || shape->activation == PP_SWIGLU;
    const bool activation = told && shape->activation != PP_RELU;
    char positions[24];
    write_positions(w, tensors, positions, sizeof positions);
    snprintf(text, size, "%s%s%s%s%s%s%s", pre ? norm_words[shape->norm] : "",
             normalization_words[shape->normalization], shape->qk_norm ? " qknorm" : "", activation ? " " : "",
             activation ? pp_activation_names[shape->activation] : "", bias_word(w), positions);
}

/* " h16x128+64/128 latent1536/512": of a head's query and key the columns that are not rotated and those that are, and
 * those of a value; of the latent vectors of queries (0: there is none), and of keys and values. */
static void write_latent(const struct pp_shape *shape, char *text, size_t size)
{
    snprintf(text, size, " h%dx%d+%d/%d latent%d/%d", shape->heads, shape->qk_nope_head_dim, shape->qk_rope_head_dim,
             shape->v_head_dim, shape->q_lora_rank, shape->kv_lora_rank);
}

/* " h8x96 kv2", if heads have columns of their own number; of norm and step only where tensors differ by it. */
static void write_heads(const struct pp_shape *shape, bool tensors, char *text, size_t size)
{
    const int kv = pp_kv_heads(shape);
    const bool fewer = kv != shape->heads;
    char columns[16] = "", keys[16] = "";
    if (shape->head_dim) snprintf(columns, sizeof columns, "x%d", shape->head_dim);
    if (fewer) snprintf(keys, sizeof keys, " kv%d", kv);
    *text = '\0';
    if (!tensors || fewer || shape->head_dim) snprintf(text, size, " h%d%s%s", shape->heads, columns, keys);
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
static void write_experts(const struct pp_writer *w, bool tensors, char *text, size_t size)
{
    const struct pp_shape *shape = &w->model->shape;
    *text = '\0';
    if (!has_experts(w)) return;
    char factor[PP_REAL_BYTES], groups[32] = "", room[PP_REAL_BYTES + 48] = "", beside[16] = "", workers[24] = "",
                                pieces[8] = "";
    if (pp_shape_expert_groups(shape))
        snprintf(groups, sizeof groups, "of%d/%d", shape->groups_per_token, shape->expert_groups);
    if (!tensors)
        snprintf(room, sizeof room, "k%d%s%sc%s", shape->experts_per_token, shape->sigmoid_scores ? "l" : "", groups,
                 pp_real_text(shape->capacity_factor, factor));
    if (pp_shape_exchange_pieces(shape)) snprintf(pieces, sizeof pieces, "o%d", shape->exchange_pieces);
    if (pp_shape_expert_parallel(shape) > 1)
        snprintf(workers, sizeof workers, "/%d%s", shape->expert_parallel, tensors ? "" : pieces);
    if (shape->shared_ff) snprintf(beside, sizeof beside, "s%d%s", shape->shared_ff, shape->shared_gate ? "g" : "");
    snprintf(text, size, " x%d%s%s%s%s", shape->experts, room, shape->expert_bias ? "b" : "", beside, workers);
}

/* " dense3/2ff800", where the part has layers with experts and layers without: so many come before the first layer with
 * experts, which every second one has from there on. */
static void write_dense(const struct pp_writer *w, char *text, size_t size)
{
    const struct pp_shape *shape = &w->model->shape;
    const int first = w->stage->first_layer + w->part.begin, end = w->stage->first_layer + w->part.end;
    const int layers = end - first, experts = pp_layers_with_experts(shape, end) - pp_layers_with_experts(shape, first);
    int before = 0;
    char every[16] = "";
    *text = '\0';
    if (experts == 0 || experts == layers) return;
    while (!pp_layer_has_experts(shape, first + before)) before++;
    if (before + experts < layers) snprintf(every, sizeof every, "/%d", shape->experts_every);
    snprintf(text, size, " dense%d%sff%d", before, every, shape->dense_ff ? shape->dense_ff : shape->d_ff);
}

static void write_precision(const struct pp_shape *shape, char *text, size_t size)
{
    *text = '\0';
    if (shape->precision != PP_FP32) snprintf(text, size, " %s", pp_precision_names[shape->precision]);
}

static void write_workers(const struct pp_shape *shape, bool tensors, char *text, size_t size)
{
    const char *gathers = pp_shape_gathers_keys(shape) ? " all_gather" : "";
    char context[32] = "", pieces[16] = "";
    *text = '\0';
    if (pp_shape_context(shape) > 1 && !tensors) snprintf(context, sizeof context, " cp%d%s", shape->context, gathers);
    if (shape->sum_pieces > 1 && !tensors) snprintf(pieces, sizeof pieces, "/%d", shape->sum_pieces);
    if (pp_shape_tensor(shape) > 1)
        snprintf(text, size, " tp%d%s%s%s", shape->tensor, pp_shape_parts_tokens(shape) ? " sp" : "", pieces, context);
    else
        snprintf(text, size, "%s", context);
}

/* " window4096", where some layer of the program has a window that hides keys. Behind it stands which layers have none,
 * counted from 1 within the program: " full3" is one layer, " full3/6" the third and each sixth after it. */
static void write_window(const struct pp_writer *w, char *text, size_t size)
{
    const struct pp_shape *shape = &w->model->shape;
    const int skip = shape->window_skip, n = w->part.end - w->part.begin,
              before = w->stage->first_layer + w->part.begin, first = skip ? skip - before % skip : n + 1;
    char others[32] = "";
    *text = '\0';
    if (!shape->window || shape->window >= w->row_seq || (first == 1 && n == 1) || n == 0) return;
    if (first <= n) snprintf(others, sizeof others, " full%d", first);
    if (first + skip <= n) snprintf(others, sizeof others, " full%d/%d", first, skip);
    snprintf(text, size, " window%d%s", shape->window, others);
}

/* What differs in norm and step of a stage that has a copy of a tensor, or what it is a copy of. */
static const char *tied_word(const struct pp_writer *w)
{
    return w->model->shape.tied && (w->stage->embed || w->stage->decode) ? " tied" : "";
}

/* What a backward makes again, beside what it does. */
static void write_again(const struct pp_writer *w, int kind, char *text, size_t size)
{
    const int end = w->slot.again < w->part.end ? w->slot.again : w->part.end, n = end - w->part.begin;
    text[0] = '\0';
    if (w->checkpoints) snprintf(text, size, " layers");
    if (kind == PP_B && n > 0) snprintf(text, size, " again%d", n);
    /* of I nothing but what experts' routers need */
    if (kind != PP_F && (kind != PP_I || has_experts(w)) && w->slot.activation_again)
        snprintf(text, size, " activation");
    if (w->clears)
        snprintf(text + strlen(text), size - strlen(text), " clears %d", pp_shape_parts(&w->model->shape, PP_DENSE));
}

/* "B 2l+emb writes d200". part: an F or R whose input is where the part before it left it; writes: gradients, to which
 * the same task of other microbatches adds. */
static int write_layers(const struct pp_writer *w, int kind, char *text, size_t size)
{
    const bool embed = w->stage->embed && w->part.lowest, decode = w->stage->decode && w->part.highest;
    const bool forward = kind == PP_F || kind == PP_R;
    const bool writes = !w->adds && pp_makes_gradients(kind);
    return snprintf(text, size, "%s %dl%s%s%s%s%s%s d%d", pp_kinds[kind].name, w->part.end - w->part.begin,
                    embed ? "+emb" : "", decode ? "+dec" : "", forward && !w->part.lowest ? " part" : "",
                    w->rounds ? " rounds" : "", writes ? " writes" : "", w->training ? "" : " eval",
                    w->model->shape.d_model);
}

/* "B 2l+emb d200 h2 ff200 causal p0.2 seq35 rows5": what the work depends on, and nothing else. The rows stand at the
 * end: between shapes that differ in nothing else, times are interpolated. */
pp_status pp_write_signature(const struct pp_writer *w, int kind)
{
    const struct pp_shape *shape = &w->model->shape;
    char *text = w->out->signature;
    const size_t size = sizeof w->out->signature;
    const bool tensors = kind == PP_NORM || kind == PP_STEP || pp_keeps_shards(kind);
    const int ff = pp_shape_of_kind(shape, has_experts(w) ? PP_LAYER_EXPERTS : PP_LAYER_DENSE).d_ff;
    char vocab[32] = "", dropout[32] = "", precision[16], layers[80], share[24] = "", heads[80], parts[64],
         experts[160];
    char again[48], window[64], dense[48];
    write_layer_words(w, tensors, layers, sizeof layers);
    write_again(w, kind, again, sizeof again);
    write_window(w, window, sizeof window);
    if (pp_shape_is_latent(shape))
        write_latent(shape, heads, sizeof heads);
    else
        write_heads(shape, tensors, heads, sizeof heads);
    write_experts(w, tensors, experts, sizeof experts);
    write_dense(w, dense, sizeof dense);
    write_vocabulary(w, tensors, vocab, sizeof vocab);
    if (pp_writer_drops(w))
        snprintf(dropout, sizeof dropout, " p%g%s", shape->dropout, shape->residual_only ? "r" : "");
    write_precision(shape, precision, sizeof precision);
    write_workers(shape, tensors, parts, sizeof parts);
    if (shape->zero) snprintf(share, sizeof share, " zero 1/%d", shape->replicas);
    int used = write_layers(w, kind, text, size);
    const bool names_optimizer = kind == PP_STEP && shape->optimizer != PP_SGD;
    if (tensors)
        used += snprintf(text + used, size - (size_t)used, "%s ff%d%s%s%s%s%s%s%s%s%s%s", heads, ff, experts, dense,
                         vocab, parts, precision, layers, tied_word(w), names_optimizer ? " " : "",
                         names_optimizer ? pp_optimizers[shape->optimizer].name : "", share);
    else
        used += snprintf(text + used, size - (size_t)used, "%s ff%d%s%s%s%s %s%s%s%s%s%s%s seq%d rows%d", heads, ff,
                         experts, dense, vocab, parts, shape->mask == PP_MASK_CAUSAL ? "causal" : "full", window,
                         attention_words[shape->attention], dropout, precision, layers, again, w->row_seq, w->rows);
    if ((size_t)used < size) return PP_OK;
    return pp_fail(PP_INTERNAL, "a program's name has %d characters: raise PP_SIGNATURE_BYTES", used);
}
