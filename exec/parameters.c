/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/parameters.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 4 << 20 }; /* elements that travel at once */

int pp_parameters_parts(const struct pp_model *model) { return 1 + pp_optimizers[model->shape.optimizer].states; }

/* What this worker keeps of a tensor of parameters; n = 0: nothing. */
struct kept {
    int64_t first, n;
};

static struct kept kept_of(const struct pp_worker *w, int tensor)
{
    const struct pp_tensor *t = &w->job->model->tensors[tensor];
    struct kept kept = {0, pp_worker_has(w, t->stage) ? t->elements : 0};
    if (kept.n) pp_worker_keeps(w, tensor, 0, &kept.first, &kept.n);
    return kept;
}

/* part: see pp_worker_set(). In files, parts follow one another. */
static pp_status load(struct pp_worker *w, struct pp_weights_reader *reader, int part, uint64_t seed,
                      pp_init_tensor_fn init)
{
    const struct pp_model *model = w->job->model;
    pp_status status = PP_OK;
    for (int i = 0; i < model->ntensors && status == PP_OK; i++) {
        const struct pp_tensor *tensor = &model->tensors[i];
        float *values;
        int64_t first = 0, n = tensor->elements;
        if (!pp_worker_has(w, tensor->stage)) continue;
        PP_TRY(pp_world_check(w->world));                  /* of a large model this takes minutes */
        if (part) pp_worker_keeps(w, i, part, &first, &n); /* copies are made of all weights */
        if (n == 0) continue;
        PP_TRY(PP_NEW(&values, n));
        if (reader)
            status = pp_weights_read(reader, part * model->ntensors + i, first, n, values);
        else
            init(model, i, seed, values);
        if (status == PP_OK) status = pp_worker_set(w, i, part, first, n, values);
        free(values);
    }
    return status;
}

pp_status pp_parameters_init(struct pp_worker *w, const char *file, uint64_t seed, pp_init_tensor_fn init)
{
    struct pp_weights_reader *reader = NULL;
    if (file) PP_TRY(pp_context(pp_weights_open(file, w->job->model, &reader), "--init"));
    pp_status status = load(w, reader, 0, seed, init);
    pp_weights_close(reader);
    return status;
}

pp_status pp_parameters_read(struct pp_worker *w, struct pp_weights_reader *reader, float *best)
{
    const struct pp_model *model = w->job->model;
    const int parts = pp_parameters_parts(model);
    for (int part = 0; part < parts; part++) PP_TRY(load(w, reader, part, 0, NULL));
    for (int i = 0; i < model->ntensors && best; i++) {
        const struct kept kept = kept_of(w, i);
        PP_TRY(pp_world_check(w->world));
        if (kept.n) PP_TRY(pp_weights_read(reader, parts * model->ntensors + i, kept.first, kept.n, best));
        best += kept.n;
    }
    return PP_OK;
}

int64_t pp_parameters_count(const struct pp_worker *w)
{
    int64_t n = 0;
    for (int i = 0; i < w->job->model->ntensors; i++) n += kept_of(w, i).n;
    return n;
}

pp_status pp_parameters_copy(struct pp_worker *w, float *to)
{
    for (int i = 0; i < w->job->model->ntensors; i++) {
        const struct kept kept = kept_of(w, i);
        if (kept.n) PP_TRY(pp_worker_get(w, i, 0, kept.first, kept.n, to));
        to += kept.n;
    }
    return PP_OK;
}

struct piece {
    int tensor, part, owner; /* owner: a worker that has it */
    int64_t first, n;
    const float *copy; /* NULL, or where the owner has it */
};

/* The longest piece from `first` on that one worker has: its replica may have a share of the tensor. */
static struct piece next_piece(const struct pp_worker *w, int tensor, int part, int64_t first)
{
    const struct pp_model *model = w->job->model;
    const struct pp_tensor *t = &model->tensors[tensor];
    const bool shared = part ? model->shape.zero : t->value_offset < 0;
    const int replica = shared ? (int)(first / t->part_elements) : 0;
    const int64_t end = shared ? (replica + 1) * t->part_elements : t->elements;
    const int64_t left = (end < t->elements ? end : t->elements) - first;
    return (struct piece){.tensor = tensor,
                          .part = part,
                          .owner = replica * w->job->train->ranks + w->job->train->stage_rank[t->stage],
                          .first = first,
                          .n = left < PIECE ? left : PIECE};
}

/* From its owner to worker 0 and into the file. */
static pp_status save_piece(struct pp_worker *w, struct pp_weights_writer *writer, const struct piece *p, float *buffer)
{
    const int owner = p->owner;
    int64_t bytes = p->n * (int64_t)sizeof *buffer;
    if (w->me == owner && p->copy) memcpy(buffer, p->copy, (size_t)bytes);
    if (w->me == owner && !p->copy) PP_TRY(pp_worker_get(w, p->tensor, p->part, p->first, p->n, buffer));
    if (w->me == owner && owner != 0) return pp_send_now(w->world, owner, 0, PP_MESSAGE_CONTROL, buffer, bytes);
    if (w->me != 0) return PP_OK;
    if (owner != 0) PP_TRY(pp_recv_now(w->world, owner, 0, PP_MESSAGE_CONTROL, buffer, bytes));
    return pp_weights_append(writer, buffer, p->n);
}

/* A piece of a weight that is split, to the first replica, which evaluates with all of it. */
static pp_status restore_piece(struct pp_worker *w, const struct piece *p, float *buffer)
{
    const int to = w->rank;
    const int64_t bytes = p->n * (int64_t)sizeof *buffer;
    if (p->owner == to) return PP_OK;
    if (w->me == p->owner) {
        memcpy(buffer, p->copy, (size_t)bytes);
        return pp_send_now(w->world, p->owner, to, PP_MESSAGE_CONTROL, buffer, bytes);
    }
    if (w->me != to) return PP_OK;
    PP_TRY(pp_recv_now(w->world, p->owner, to, PP_MESSAGE_CONTROL, buffer, bytes));
    return pp_worker_set(w, p->tensor, 0, p->first, p->n, buffer);
}

pp_status pp_parameters_restore(struct pp_worker *w, const float *from)
{
    float *buffer; /* as in pp_parameters_append() */
    PP_TRY(pp_world_scratch(w->world, w->me, PIECE * (int64_t)sizeof *buffer, &buffer));
    for (int i = 0; i < w->job->model->ntensors; i++) {
        const struct pp_tensor *tensor = &w->job->model->tensors[i];
        const struct kept kept = kept_of(w, i);
        if (!pp_worker_has(w, tensor->stage)) continue;
        if (kept.n) PP_TRY(pp_worker_set(w, i, 0, kept.first, kept.n, from));
        for (int64_t first = 0; first < tensor->elements && tensor->value_offset < 0;) {
            struct piece piece = next_piece(w, i, 0, first);
            if (piece.owner == w->me) piece.copy = from + (first - kept.first);
            PP_TRY(restore_piece(w, &piece, buffer));
            first += piece.n;
        }
        from += kept.n;
    }
    return PP_OK;
}

pp_status pp_parameters_append(struct pp_worker *w, struct pp_weights_writer *writer, int part, const float *from)
{
    const struct pp_model *model = w->job->model;
    float *buffer; /* lives with the world: another worker may be copying from it when this one fails */
    PP_TRY(pp_world_scratch(w->world, w->me, PIECE * (int64_t)sizeof *buffer, &buffer));
    for (int i = 0; i < model->ntensors; i++) {
        const struct kept kept = kept_of(w, i);
        for (int64_t first = 0; first < model->tensors[i].elements;) {
            struct piece piece = next_piece(w, i, part, first);
            if (from && piece.owner == w->me) piece.copy = from + (first - kept.first);
            PP_TRY(save_piece(w, writer, &piece, buffer));
            first += piece.n;
        }
        if (from) from += kept.n;
    }
    return PP_OK;
}

pp_status pp_parameters_save(struct pp_worker *w, const char *file)
{
    struct pp_weights_writer *writer = NULL;
    if (w->me == 0) PP_TRY(pp_weights_create(file, w->job->model, NULL, &writer));
    pp_status status = pp_parameters_append(w, writer, 0, NULL);
    if (w->me != 0) return status;
    if (status == PP_OK) return pp_weights_commit(writer);
    pp_weights_discard(writer);
    return status;
}
