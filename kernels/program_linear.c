/* SPDX-License-Identifier: Apache-2.0
 *
 * The products of layers' linears, in FP8 where the model has that precision: both factors are scaled, each as a whole
 * so that its largest number becomes the largest one of the format, and rounded: activations and weights to E4M3,
 * gradients to E5M2. That is what Transformer Engine calls Float8CurrentScaling. Results are bfloat16, or float32 as
 * gradients of weights are. All else is as in bf16: the embedding, the decoder, routers, the gate beside experts,
 * attention, norms, what is sent, and products of sizes that are no multiples of PP_FP8_STEP.
 *
 * cuBLAS has one kind of product of FP8 matrices, A B'. So a factor that lies in memory the other way is turned as it
 * is rounded. Where a program has both gradients of a linear, the gradient at its output is rounded once, both ways.
 * Weights are rounded once a step, both ways, into copies that the worker keeps (pp_tensor.offset8), by the first F of
 * the stage; where workers keep nothing but shares of weights, each program rounds what was gathered for it.
 */
#include "core/calls/fp8.h"
#include "kernels/model_program.h"

/* The scale itself, amax, and what lies between scales: cuBLAS (13.1, on an H200) refuses those at other addresses than
 * multiples of 16 bytes. */
enum { NUMBERS_OF_SCALE = 4 };

static bool is_fp8(const struct pp_writer *w, const struct pp_linear *p)
{
    bool fits = true;
    for (int i = 0; i < 3; i++) fits = fits && p->mnk[i] % PP_FP8_STEP == 0;
    return w->model->local.precision == PP_FP8 && !p->plain && fits;
}

static struct pp_ref scale_of(const struct pp_writer *w, int buffer)
{
    return pp_ref_further(w->fp8.scales, NUMBERS_OF_SCALE * buffer * (int64_t)sizeof(float));
}

static struct pp_ref amax_of(const struct pp_writer *w, int buffer)
{
    return pp_ref_further(scale_of(w, buffer), sizeof(float));
}

static struct pp_call *write_pass(struct pp_writer *w, enum pp_kernel kernel, const struct pp_fp8_factor *f)
{
    struct pp_call *call = pp_writer_call(w, kernel);
    call->fp8 = (struct pp_fp8_dims){.rows = f->rows, .width = f->width, .times = f->times > 1 ? f->times : 0};
    return call;
}

/* Rounds a factor; at says to where, and amax and scale. */
static void write_passes(struct pp_writer *w, const struct pp_fp8_factor *f, struct pp_to_fp8_refs at)
{
    at.x = f->ref;
    write_pass(w, PP_KERNEL_AMAX, f)->at.amax = (struct pp_amax_refs){.amax = at.amax, .x = f->ref};
    struct pp_call *call = write_pass(w, PP_KERNEL_TO_FP8, f);
    call->fp8.gradient = f->gradient;
    call->at.to_fp8 = at;
}

/* Notes that a buffer has to be so large, and what it holds. */
static struct pp_ref use_buffer(struct pp_writer *w, int buffer, const struct pp_fp8_factor *f)
{
    struct pp_fp8_buffer *b = &w->fp8.buffers[buffer];
    const int64_t bytes = (int64_t)f->rows * f->width * f->times;
    if (bytes > b->bytes) b->bytes = bytes;
    b->of = *f;
    return b->numbers;
}

/* What a product reads in the place of a factor. */
struct rounded {
    struct pp_ref numbers, scale;
};

/* Rounds a factor into a buffer; other: where it goes the other way as well, or PP_FP8_NOWHERE. */
static struct rounded write_rounding(struct pp_writer *w, int buffer, int other, const struct pp_fp8_factor *f)
{
    const bool both = other != PP_FP8_NOWHERE;
    const int scales = both ? other : buffer; /* that of the other way is needed for longer */
    const struct pp_ref to = use_buffer(w, buffer, f),
                        opposite = both ? use_buffer(w, other, f) : pp_ref_to(PP_MEM_NONE, 0);
    write_passes(w, f,
                 (struct pp_to_fp8_refs){.q = f->turned ? opposite : to,
                                         .turned = f->turned ? to : opposite,
                                         .scale = scale_of(w, scales),
                                         .amax = amax_of(w, scales)});
    return (struct rounded){to, scale_of(w, scales)};
}

static bool holds(const struct pp_fp8_buffer *b, const struct pp_fp8_factor *f)
{
    const struct pp_ref *is = &b->of.ref, *ref = &f->ref;
    return is->region == ref->region && is->offset == ref->offset && is->row_bytes == ref->row_bytes &&
           is->part_bytes == ref->part_bytes && is->expert_bytes == ref->expert_bytes && b->of.rows == f->rows &&
           b->of.width == f->width && b->of.times == f->times;
}

/* The buffer of gradients that holds it, or else, with `takes`, a free one; PP_FP8_NOWHERE if there is none. */
static int find_gradient(const struct pp_writer *w, const struct pp_fp8_factor *f, bool takes)
{
    const struct pp_fp8_buffer *b = w->fp8.buffers;
    int found = PP_FP8_NOWHERE;
    for (int i = PP_FP8_BUFFERS - 1; i >= PP_FP8_GRADIENTS; i--)
        if (takes && b[i].of.ref.region == PP_MEM_NONE) found = i;
    for (int i = PP_FP8_GRADIENTS; i < PP_FP8_BUFFERS; i++)
        if (holds(&b[i], f)) found = i;
    return found;
}

/* Activations, and gradients at the outputs of linears. Of these the gradient of the input (not turned) comes first,
 * and that of the weight is the last to read them. */
static struct rounded round_a(struct pp_writer *w, const struct pp_fp8_factor *f)
{
    const int other = w->fp8.both && f->gradient ? find_gradient(w, f, !f->turned) : PP_FP8_NOWHERE;
    if (other == PP_FP8_NOWHERE || !f->turned) return write_rounding(w, PP_FP8_A, other, f);
    struct pp_fp8_buffer *b = &w->fp8.buffers[other];
    b->of = (struct pp_fp8_factor){0};
    return (struct rounded){b->numbers, scale_of(w, other)};
}

/* Weights without copies, which do not change while a program runs, and activations. */
static struct rounded round_b(struct pp_writer *w, const struct pp_fp8_factor *f)
{
    const struct pp_fp8_buffer *b = &w->fp8.buffers[PP_FP8_B];
    if (f->ref.region == PP_MEM_PARAM16 && holds(b, f) && b->of.turned == f->turned)
        return (struct rounded){b->numbers, scale_of(w, PP_FP8_B)};
    return write_rounding(w, PP_FP8_B, PP_FP8_NOWHERE, f);
}

/* The weight that a product reads, if it has FP8 copies; else NULL. */
static const struct pp_tensor *copied_weight(const struct pp_writer *w, const struct pp_linear *p)
{
    const struct pp_tensor *tensors = &w->model->tensors[w->stage->first_tensor];
    if (!pp_shape_keeps_fp8(&w->model->shape) || p->b.region != PP_MEM_PARAM16) return NULL;
    for (int i = 0; i < w->stage->tensors; i++)
        if (tensors[i].offset16 == p->b.offset && tensors[i].offset8 >= 0) return &tensors[i];
    return NULL;
}

static struct pp_ref copy_of(const struct pp_tensor *t, bool turned)
{
    return pp_ref_to(PP_MEM_PARAM16, t->offset8 + (turned ? t->local_elements : 0));
}

/* Behind an even number of matrices whose sides are multiples of 16: at such a multiple, too. */
static struct pp_ref copies_scale(const struct pp_tensor *t)
{
    return pp_ref_to(PP_MEM_PARAM16, t->offset8 + 2 * t->local_elements);
}

static struct pp_ref copies_amax(const struct pp_tensor *t) { return pp_ref_further(copies_scale(t), sizeof(float)); }

/* Both copies of a weight, for all tasks of the stage: also where this product does not read them, since its number of
 * tokens is no multiple. Of several products by one weight, which are pieces of one, the first one writes them. */
static void write_copies(struct pp_writer *w, const struct pp_tensor *t, const struct pp_fp8_factor *f)
{
    struct pp_fp8_factor all = *f;
    if (w->fp8.copied == t) return;
    w->fp8.copied = t;
    all.times = (int)(t->local_elements / ((int64_t)f->rows * f->width));
    write_passes(
        w, &all,
        (struct pp_to_fp8_refs){
            .q = copy_of(t, false), .turned = copy_of(t, true), .scale = copies_scale(t), .amax = copies_amax(t)});
}

/* Numbers in weights that are not multiplied. */
static int64_t skipped(const struct pp_linear *p) { return (int64_t)p->skips * p->mnk[1] * p->mnk[2]; }

/* In bfloat16, or float32. */
static struct pp_call *write_plain(struct pp_writer *w, const struct pp_linear *p)
{
    const int64_t bytes = skipped(p) * pp_element_bytes(w->model->local.precision);
    struct pp_call *call = pp_writer_gemm(w, p->kernel, p->mnk, p->mode, p->c, p->a, pp_ref_further(p->b, bytes));
    if (p->times > 1) call->gemm.times = p->times;
    return call;
}

static struct pp_fp8_factor factor_of(const struct pp_linear *p, struct pp_ref ref, int rows, int width, bool turned)
{
    return (struct pp_fp8_factor){.ref = ref,
                                  .rows = turned ? width : rows,
                                  .width = turned ? rows : width,
                                  .times = p->times > 1 ? p->times : 1,
                                  .turned = turned};
}

struct pp_call *pp_writer_linear(struct pp_writer *w, const struct pp_linear *p)
{
    const int m = p->mnk[0], n = p->mnk[1], k = p->mnk[2];
    struct pp_fp8_factor a = factor_of(p, p->a, m, k, p->kernel == PP_KERNEL_GEMM_TN);
    const struct pp_fp8_factor b = factor_of(p, p->b, n, k, p->kernel != PP_KERNEL_GEMM_NT);
    const struct pp_tensor *weight = copied_weight(w, p);
    if (weight && w->rounds && p->kernel == PP_KERNEL_GEMM_NT && p->skips == 0) write_copies(w, weight, &b);
    if (!is_fp8(w, p)) return write_plain(w, p);
    a.gradient = p->kernel != PP_KERNEL_GEMM_NT;
    const struct rounded of_a = round_a(w, &a);
    const struct rounded of_b =
        weight ? (struct rounded){pp_ref_further(copy_of(weight, b.turned), skipped(p)), copies_scale(weight)}
               : round_b(w, &b); /* then no weights are skipped (pp_exchange_pieces()) */
    struct pp_call *call = pp_writer_gemm(w, PP_KERNEL_GEMM_FP8, p->mnk, p->mode, p->c, of_a.numbers, of_b.numbers);
    if (p->times > 1) call->gemm.times = p->times;
    call->gemm.gradient = a.gradient;
    call->at.gemm_fp8.scale_a = of_a.scale;
    call->at.gemm_fp8.scale_b = of_b.scale;
    return call;
}

void pp_write_weight_grads(struct pp_writer *w, const struct pp_weight_grads *g)
{
    const struct pp_linear product = {.kernel = PP_KERNEL_GEMM_TN,
                                      .mode = PP_GEMM_GRADIENT,
                                      .mnk = {g->m, g->n, (int)w->tokens},
                                      .c = g->weight,
                                      .a = g->dy,
                                      .b = g->input,
                                      .plain = g->plain};
    pp_writer_linear(w, &product)->gemm.wide = true;
    if (g->bias.region == PP_MEM_NONE) return;
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_COLSUM);
    call->matrix = (struct pp_matrix_dims){.rows = (int)w->tokens, .width = g->m};
    call->at.colsum = (struct pp_colsum_refs){.grad = g->bias, .in = g->dy};
}

void pp_writer_take_fp8(struct pp_writer *w, struct pp_fp8_scratch *out)
{
    *out = (struct pp_fp8_scratch){0};
    if (w->fp8.buffers[PP_FP8_A].bytes == 0) return;
    for (int i = 0; i < PP_FP8_BUFFERS; i++) out->buffers[i].numbers = pp_writer_scratch(w, w->fp8.buffers[i].bytes);
    out->scales = pp_writer_scratch(w, NUMBERS_OF_SCALE * PP_FP8_BUFFERS * (int64_t)sizeof(float));
}
