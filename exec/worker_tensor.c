/* SPDX-License-Identifier: Apache-2.0
 *
 * The host's access to parameters and to what the optimizer keeps of them.
 */
#include <stdlib.h>

#include "core/calls/bf16.h"
#include "core/model/slice.h"
#include "exec/worker.h"

enum { PIECE = 1 << 20 /* elements rounded at a time: each upload waits for a GPU */ };
/* The most slices of a tensor that a GPU makes: it is waited for after each, and shared columns have thousands. */
enum { SLICES = 16 };

bool pp_worker_shares(const struct pp_worker *w, int tensor, int part)
{
    const struct pp_shape *shape = &w->job->model->shape;
    return shape->zero == PP_ZERO_PARAMETERS || (part ? shape->zero : w->job->model->tensors[tensor].value_offset < 0);
}

/* Where the worker's share of a tensor begins. */
static int64_t share_start(const struct pp_worker *w, const struct pp_tensor *t)
{
    return pp_worker_share(w->job->train, w->me, t->set) * t->part_elements;
}

void pp_worker_keeps(const struct pp_worker *w, int tensor, int part, int64_t *first, int64_t *n)
{
    const struct pp_tensor *t = &w->job->model->tensors[tensor];
    const int64_t start = share_start(w, t), end = start + t->part_elements, last = *first + *n;
    if (!pp_worker_shares(w, tensor, part)) return;
    *first = *first > start ? *first : start;
    *n = last < end ? last - *first : end - *first;
    if (*n < 0) *n = 0;
}

/* Bytes of an element as the worker keeps it. part: as of pp_worker_get(). */
static int bytes_of(const struct pp_worker *w, int part)
{
    return part ? pp_optimizers[w->job->model->shape.optimizer].state_bytes : (int)sizeof(float);
}

static char *tensor_at(const struct pp_worker *w, int tensor, int part, int64_t first)
{
    const struct pp_model *model = w->job->model;
    const struct pp_tensor *t = &model->tensors[tensor];
    const struct pp_layout *layout = w->job->layout;
    const int64_t states = layout->state_offset[t->stage];
    const int64_t value = model->shape.zero == PP_ZERO_PARAMETERS ? t->share_value_offset : t->value_offset;
    int64_t at = part ? states + pp_state_offset(model, t, part - 1) : layout->param_offset[t->stage] + value;
    if (!part && t->value_offset < 0) at = states + pp_split_weight_offset(model, t);
    if (pp_worker_shares(w, tensor, part)) first -= share_start(w, t);
    return w->arena + at + first * bytes_of(w, part);
}

/* Writes n numbers to device memory at `to`, rounded to bfloat16. */
static pp_status upload_bf16(struct pp_worker *w, char *to, int64_t n, const float *values)
{
    uint16_t *rounded;
    pp_status status = PP_NEW(&rounded, n < PIECE ? n : PIECE);
    for (int64_t done = 0; done < n && status == PP_OK; done += PIECE) {
        const int64_t count = n - done < PIECE ? n - done : PIECE;
        for (int64_t i = 0; i < count; i++) rounded[i] = pp_bf16(values[done + i]);
        status = w->backend->upload(w->device, to + done * (int64_t)sizeof *rounded, rounded,
                                    count * (int64_t)sizeof *rounded);
    }
    free(rounded);
    return status;
}

/* Reads n numbers that lie at `from` in device memory as bfloat16. */
static pp_status download_bf16(struct pp_worker *w, const char *from, int64_t n, float *out)
{
    uint16_t *rounded;
    pp_status status = PP_NEW(&rounded, n < PIECE ? n : PIECE);
    for (int64_t done = 0; done < n && status == PP_OK; done += PIECE) {
        const int64_t count = n - done < PIECE ? n - done : PIECE;
        status = w->backend->download(w->device, rounded, from + done * (int64_t)sizeof *rounded,
                                      count * (int64_t)sizeof *rounded);
        for (int64_t i = 0; i < count; i++) out[done + i] = pp_bf16_float(rounded[i]);
    }
    free(rounded);
    return status;
}

pp_status pp_worker_get(struct pp_worker *w, int tensor, int part, int64_t first, int64_t n, float *out)
{
    const char *from = tensor_at(w, tensor, part, first);
    if (bytes_of(w, part) < (int)sizeof *out) return download_bf16(w, from, n, out);
    return w->backend->download(w->device, out, from, n * (int64_t)sizeof *out);
}

/* Where the copy of the element `first` lies that products read as bfloat16, where the tensor has one; a worker has all
 * of it, or with shards its share. */
static char *copy_at(const struct pp_worker *w, int tensor, int64_t first)
{
    const struct pp_tensor *t = &w->job->model->tensors[tensor];
    const bool shards = w->job->model->shape.zero == PP_ZERO_PARAMETERS;
    if (t->offset16 < 0) return NULL;
    if (shards) first -= share_start(w, t);
    return w->arena + w->job->layout->param16_offset[t->stage] + (shards ? t->share_offset16 : t->offset16) +
           first * pp_element_bytes(PP_BF16);
}

/* from: the numbers in device memory, if all are there; a device with queues then rounds them itself. */
static pp_status set_copy(struct pp_worker *w, int tensor, int64_t first, int64_t n, const float *values,
                          const char *from)
{
    const struct pp_queue_ops *queue = w->backend->queue;
    char *to = copy_at(w, tensor, first);
    if (!to) return PP_OK;
    if (!queue || !from) return upload_bf16(w, to, n, values);
    return queue->narrow(w->device, queue->compute(w->device), (void *)to, (const void *)from, n);
}

/* Sets n of the elements that the worker keeps. */
static pp_status set_kept(struct pp_worker *w, int tensor, int part, int64_t first, int64_t n, const float *values)
{
    char *to = tensor_at(w, tensor, part, first);
    if (bytes_of(w, part) < (int)sizeof *values) return upload_bf16(w, to, n, values);
    return w->backend->upload(w->device, to, values, n * (int64_t)sizeof *values);
}

pp_status pp_worker_set(struct pp_worker *w, int tensor, int part, int64_t first, int64_t n, const float *values)
{
    int64_t kept = first, count = n;
    pp_worker_keeps(w, tensor, part, &kept, &count);
    if (count > 0) PP_TRY(set_kept(w, tensor, part, kept, count, values + (kept - first)));
    if (part) return PP_OK;
    const char *from = count > 0 ? tensor_at(w, tensor, part, kept) : NULL;
    if (w->job->model->shape.zero < PP_ZERO_PARAMETERS)
        return set_copy(w, tensor, first, n, values, count == n ? from : NULL);
    return count > 0 ? set_copy(w, tensor, kept, count, values + (kept - first), from) : PP_OK;
}

/* --- initial values that the device makes --- */

static struct pp_slice slice_of(const struct pp_worker *w, const struct pp_drawing *d, int64_t done)
{
    const struct pp_model *model = w->job->model;
    struct pp_slice slice = pp_tensor_slice(&model->tensors[d->source], &model->shape, w->member, d->first + done);
    if (slice.n > d->n - done) slice.n = d->n - done;
    return slice;
}

static bool has_few_slices(const struct pp_worker *w, const struct pp_drawing *d)
{
    int64_t done = 0;
    for (int i = 0; i < SLICES && done < d->n; i++) done += slice_of(w, d, done).n;
    return done == d->n;
}

/* To device memory at `to`, slice by slice, until the device cannot draw one. */
static pp_status draw_slices(struct pp_worker *w, const struct pp_drawing *d, int precision, char *to, bool *drawn)
{
    const struct pp_tensor *t = &w->job->model->tensors[d->source];
    for (int64_t done = 0; done < d->n && *drawn;) {
        const struct pp_slice slice = slice_of(w, d, done);
        const struct pp_draw draw = {.init = slice.whole < 0 ? PP_INIT_ZERO : t->init,
                                     .bound = t->bound,
                                     .tensor = d->source,
                                     .seed = d->seed,
                                     .first = slice.whole < 0 ? 0 : slice.whole,
                                     .n = slice.n,
                                     .precision = precision};
        PP_TRY(w->backend->draw(w->device, &draw, to + done * pp_element_bytes(precision), drawn));
        done += slice.n;
    }
    return PP_OK;
}

/* Copies are drawn, too: what they are rounded from may be another worker's. */
pp_status pp_worker_draw(struct pp_worker *w, int tensor, const struct pp_drawing *drawing, bool *drawn)
{
    struct pp_drawing copy = *drawing, kept = copy;
    pp_worker_keeps(w, tensor, 0, &kept.first, &kept.n);
    if (w->job->model->shape.zero == PP_ZERO_PARAMETERS) copy = kept;
    *drawn = w->backend->draw && has_few_slices(w, &copy);
    if (*drawn && kept.n > 0) PP_TRY(draw_slices(w, &kept, PP_FP32, tensor_at(w, tensor, 0, kept.first), drawn));
    char *to = copy_at(w, tensor, copy.first);
    return to && copy.n > 0 ? draw_slices(w, &copy, PP_BF16, to, drawn) : PP_OK;
}
