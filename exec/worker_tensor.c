/* SPDX-License-Identifier: Apache-2.0
 *
 * The host's access to parameters and to what the optimizer keeps of them.
 */
#include <stdlib.h>

#include "core/bf16.h"
#include "exec/worker.h"

enum { PIECE = 1 << 20 /* elements rounded at a time: each upload waits for a GPU */ };

bool pp_worker_shares(const struct pp_worker *w, int tensor, int part)
{
    const struct pp_shape *shape = &w->job->model->shape;
    return shape->shard_params || (part ? shape->zero : w->job->model->tensors[tensor].value_offset < 0);
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
    const int64_t value = model->shape.shard_params ? t->share_value_offset : t->value_offset;
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

/* The copy that products read as bfloat16, where the tensor has one; a worker has all of it, or with shards its share.
 * from: the numbers in device memory, if all are there; a device with queues then rounds them itself. */
static pp_status set_copy(struct pp_worker *w, int tensor, int64_t first, int64_t n, const float *values,
                          const char *from)
{
    const struct pp_queue_ops *queue = w->backend->queue;
    const struct pp_tensor *t = &w->job->model->tensors[tensor];
    int64_t at = t->offset16;
    if (t->offset16 < 0) return PP_OK;
    if (w->job->model->shape.shard_params) {
        at = t->share_offset16;
        first -= share_start(w, t);
    }
    at += w->job->layout->param16_offset[t->stage] + first * pp_element_bytes(PP_BF16);
    if (!queue || !from) return upload_bf16(w, w->arena + at, n, values);
    return queue->narrow(w->device, queue->compute(w->device), (void *)(w->arena + at), (const void *)from, n);
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
    if (!w->job->model->shape.shard_params) return set_copy(w, tensor, first, n, values, count == n ? from : NULL);
    return count > 0 ? set_copy(w, tensor, kept, count, values + (kept - first), from) : PP_OK;
}
