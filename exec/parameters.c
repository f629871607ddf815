/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/parameters.h"

#include <stdlib.h>
#include <string.h>

#include "core/model/slice.h"

enum { PIECE = 4 << 20 }; /* elements that travel at once */

int pp_parameters_parts(const struct pp_model *model) { return 1 + pp_optimizers[model->shape.optimizer].states; }

/* What this worker keeps of its elements of a tensor of parameters; n = 0: nothing. */
struct kept {
    int64_t first, n;
};

static struct kept kept_of(const struct pp_worker *w, int tensor)
{
    const struct pp_tensor *t = &w->job->model->tensors[tensor];
    struct kept kept = {0, pp_worker_has(w, t->stage) ? t->local_elements : 0};
    if (kept.n) pp_worker_keeps(w, tensor, 0, &kept.first, &kept.n);
    return kept;
}

/* The longest run, of at most `most` elements, that begins at element `local` of what a member of the worker's rank has
 * of a tensor and lies in one piece in the whole tensor. */
static struct pp_slice slice_of(const struct pp_worker *w, int tensor, int member, int64_t local, int64_t most)
{
    const struct pp_model *model = w->job->model;
    struct pp_slice slice = pp_tensor_slice(&model->tensors[tensor], &model->shape, member, local);
    if (slice.n > most) slice.n = most;
    return slice;
}

/* --- from a file or `init` --- */

/* The number of the tensor that has the values of tensor `number`: of a copy of the embedding that is the embedding,
 * else itself. In files, which may have the tensors of the model several times, numbers go on: tensor k of the second
 * time is ntensors + k. */
static int source_of(const struct pp_model *model, int number)
{
    const int tensor = number % model->ntensors;
    return model->tensors[tensor].copy ? number - tensor : number;
}

/* This worker's elements first .. first + n - 1 of a tensor of a file, where the model may be there several times. */
static pp_status take(const struct pp_worker *w, struct pp_weights_reader *reader, int number, int64_t first, int64_t n,
                      float *out)
{
    for (int64_t done = 0; done < n;) {
        const struct pp_slice s = slice_of(w, number % w->job->model->ntensors, w->member, first + done, n - done);
        if (s.whole < 0)
            memset(out + done, 0, (size_t)s.n * sizeof *out);
        else
            PP_TRY(pp_weights_read(reader, source_of(w->job->model, number), s.whole, s.n, out + done));
        done += s.n;
    }
    return PP_OK;
}

/* Initial values of a tensor: all are made, in their order. */
static pp_status make(const struct pp_worker *w, int tensor, const struct pp_drawing *d, pp_init_tensor_fn init,
                      float *out)
{
    const struct pp_model *model = w->job->model;
    float *all;
    if (d->n == model->tensors[tensor].local_elements) {
        init(model, d->source, d->seed, w->member, out);
        return PP_OK;
    }
    PP_TRY(PP_NEW(&all, model->tensors[tensor].local_elements));
    init(model, d->source, d->seed, w->member, all);
    memcpy(out, all + d->first, (size_t)d->n * sizeof *out);
    free(all);
    return PP_OK;
}

/* What the worker sets of a tensor: what it keeps, or all that copies are made of. part: see pp_worker_set(). */
static struct kept wanted_of(const struct pp_worker *w, int tensor, int part)
{
    const struct pp_model *model = w->job->model;
    struct kept wanted = {0, model->tensors[tensor].local_elements};
    if (!pp_worker_has(w, model->tensors[tensor].stage)) return (struct kept){0};
    if (part || model->shape.zero == PP_ZERO_PARAMETERS) pp_worker_keeps(w, tensor, part, &wanted.first, &wanted.n);
    return wanted;
}

/* Where values come from. In files, parts follow one another. */
struct origin {
    struct pp_weights_reader *reader; /* NULL: from the device or `init` */
    uint64_t seed;
    pp_init_tensor_fn init;
};

/* values: memory for what the worker wants of the tensor. */
static pp_status load_tensor(struct pp_worker *w, const struct origin *from, int tensor, int part, float *values)
{
    const struct pp_model *model = w->job->model;
    const struct kept k = wanted_of(w, tensor, part);
    bool drawn = false;
    if (k.n == 0) return PP_OK;
    PP_TRY(pp_world_check(w->world)); /* of a large model this takes minutes */
    if (from->reader) {
        PP_TRY(take(w, from->reader, part * model->ntensors + tensor, k.first, k.n, values));
    } else {
        const struct pp_drawing drawing = {
            .source = source_of(model, tensor), .seed = from->seed, .first = k.first, .n = k.n};
        PP_TRY(pp_worker_draw(w, tensor, &drawing, &drawn));
        if (drawn) return PP_OK;
        PP_TRY(make(w, tensor, &drawing, from->init, values));
    }
    return pp_worker_set(w, tensor, part, k.first, k.n, values);
}

static pp_status load(struct pp_worker *w, const struct origin *from, int part)
{
    const struct pp_model *model = w->job->model;
    pp_status status = PP_OK;
    float *values; /* of the largest: memory anew for each takes longer than drawing its values */
    int64_t most = 1;
    for (int i = 0; i < model->ntensors; i++) {
        const int64_t n = wanted_of(w, i, part).n;
        most = n > most ? n : most;
    }
    PP_TRY(PP_NEW(&values, most));
    for (int i = 0; i < model->ntensors && status == PP_OK; i++) status = load_tensor(w, from, i, part, values);
    free(values);
    return status;
}

pp_status pp_parameters_init(struct pp_worker *w, const char *file, uint64_t seed, pp_init_tensor_fn init)
{
    struct pp_weights_reader *reader = NULL;
    if (file) PP_TRY(pp_prefix(pp_weights_open(file, w->job->model, &reader), "--init"));
    const pp_status status = load(w, &(struct origin){reader, seed, init}, 0);
    pp_weights_close(reader);
    return status;
}

pp_status pp_parameters_read(struct pp_worker *w, struct pp_weights_reader *reader, float *best)
{
    const struct pp_model *model = w->job->model;
    const int parts = pp_parameters_parts(model);
    for (int part = 0; part < parts; part++) PP_TRY(load(w, &(struct origin){.reader = reader}, part));
    for (int i = 0; i < model->ntensors && best; i++) {
        const struct kept kept = kept_of(w, i);
        PP_TRY(pp_world_check(w->world));
        PP_TRY(take(w, reader, parts * model->ntensors + i, kept.first, kept.n, best));
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

/* --- between workers --- */

/* A run of the elements that a member of a rank has of a tensor, and a worker that has them. */
struct piece {
    int tensor, part, member, owner; /* owner: a worker that has it */
    int64_t first, n;
    const float *copy; /* NULL, or where the owner has it */
};

/* The longest piece from `first` on, but not to `end`, that one worker has: it may have a share of the tensor. */
static struct piece next_piece(const struct pp_worker *w, int tensor, int part, int member, int64_t first, int64_t end)
{
    const struct pp_model *model = w->job->model;
    const struct pp_plan *plan = w->job->train;
    const struct pp_tensor *t = &model->tensors[tensor];
    const bool shared = pp_worker_shares(w, tensor, part);
    const int share = shared ? (int)(first / t->part_elements) : 0;
    const int64_t share_end = (share + 1) * t->part_elements;
    const int64_t left = (shared && share_end < end ? share_end : end) - first;
    return (struct piece){.tensor = tensor,
                          .part = part,
                          .member = member,
                          .owner = pp_share_worker(plan, share, t->set, plan->stage_rank[t->stage], member),
                          .first = first,
                          .n = left < PIECE ? left : PIECE};
}

/* A piece of a weight that is split, to a worker that evaluates with all of it. */
static pp_status restore_piece(struct pp_worker *w, const struct piece *p, int to, float *buffer)
{
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

/* Sends a piece from its owner to all workers that evaluate with the tensor whole and are to have this piece of it. */
static pp_status restore_for_all(struct pp_worker *w, const struct piece *p, float *buffer)
{
    const struct pp_plan *plan = w->job->train;
    const int set = w->job->model->tensors[p->tensor].set;
    for (int i = 0; i < plan->context * (set == PP_DENSE ? plan->expert_parallel : 1); i++)
        PP_TRY(restore_piece(w, p, pp_share_worker(plan, i, set, w->rank, w->member), buffer));
    return PP_OK;
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
        const bool whole = tensor->value_offset < 0 && w->job->model->shape.zero < PP_ZERO_PARAMETERS;
        for (int64_t first = 0; whole && first < tensor->local_elements;) {
            struct piece piece = next_piece(w, i, 0, w->member, first, tensor->local_elements);
            if (piece.owner == w->me) piece.copy = from + (first - kept.first);
            PP_TRY(restore_for_all(w, &piece, buffer));
            first += piece.n;
        }
        from += kept.n;
    }
    return PP_OK;
}

/* --- to a file --- */

/* What worker 0 makes of a tensor at once, from all workers that have some of it. */
struct window {
    int64_t first, end; /* elements of the whole tensor */
    float *values;      /* [PIECE] */
    float *buffer;      /* [PIECE], for messages */
};

/* The workers that share a tensor have their elements in the order of the whole one: where those before its element
 * `whole` end, from `local` on. */
static int64_t local_end(const struct pp_worker *w, int tensor, int member, int64_t local, int64_t whole)
{
    const int64_t elements = w->job->model->tensors[tensor].local_elements;
    while (local < elements) {
        const struct pp_slice s = slice_of(w, tensor, member, local, elements);
        const int64_t before = s.whole < 0 ? s.n : whole - s.whole;
        if (before < s.n) return before > 0 ? local + before : local;
        local += s.n;
    }
    return local;
}

static void put(const struct pp_worker *w, const struct piece *p, const float *values, const struct window *window)
{
    for (int64_t done = 0; done < p->n;) {
        const struct pp_slice s = slice_of(w, p->tensor, p->member, p->first + done, p->n - done);
        if (s.whole >= 0)
            memcpy(window->values + (s.whole - window->first), values + done, (size_t)s.n * sizeof *values);
        done += s.n;
    }
}

/* Sends a piece from its owner to worker 0, which puts it where it belongs in its window. */
static pp_status collect_piece(struct pp_worker *w, const struct piece *p, const struct window *window)
{
    const int owner = p->owner;
    float *buffer = window->buffer;
    const int64_t bytes = p->n * (int64_t)sizeof *buffer;
    if (w->me == owner && p->copy) memcpy(buffer, p->copy, (size_t)bytes);
    if (w->me == owner && !p->copy) PP_TRY(pp_worker_get(w, p->tensor, p->part, p->first, p->n, buffer));
    if (w->me == owner && owner != 0) return pp_send_now(w->world, owner, 0, PP_MESSAGE_CONTROL, buffer, bytes);
    if (w->me != 0) return PP_OK;
    if (owner != 0) PP_TRY(pp_recv_now(w->world, owner, 0, PP_MESSAGE_CONTROL, buffer, bytes));
    put(w, p, buffer, window);
    return PP_OK;
}

/* Which of the parts of a tensor this worker has; beyond the last one: what another has, too. */
static int sharer_of(const struct pp_worker *w, const struct pp_tensor *t)
{
    return t->of_experts ? w->member : pp_worker_tensor_rank(w->job->train, w->me);
}

/* from: NULL, or a copy of what this worker keeps of the tensor. reached: [members] how many of their elements
 * earlier windows had. */
static pp_status collect(struct pp_worker *w, int tensor, int part, const float *from, int64_t *reached,
                         const struct window *window)
{
    const struct pp_model *model = w->job->model;
    const int sharers = pp_tensor_sharers(&model->tensors[tensor], &model->shape);
    const struct kept kept = kept_of(w, tensor);
    for (int k = 0; k < sharers; k++) {
        if (w->me != 0 && sharer_of(w, &model->tensors[tensor]) != k) continue;
        const int64_t end = local_end(w, tensor, k, reached[k], window->end);
        while (reached[k] < end) {
            struct piece piece = next_piece(w, tensor, part, k, reached[k], end);
            if (from && piece.owner == w->me) piece.copy = from + (piece.first - kept.first);
            PP_TRY(collect_piece(w, &piece, window));
            reached[k] += piece.n;
        }
    }
    return PP_OK;
}

static pp_status append(struct pp_worker *w, struct pp_weights_writer *writer, int part, const float *from,
                        int64_t *reached, struct window *window)
{
    const struct pp_model *model = w->job->model;
    for (int i = 0; i < model->ntensors; i++) {
        const int64_t elements = model->tensors[i].elements;
        memset(reached, 0, (size_t)pp_shape_sharers(&model->shape) * sizeof *reached);
        for (window->first = 0; window->first < elements && !model->tensors[i].copy; window->first = window->end) {
            window->end = elements - window->first < PIECE ? elements : window->first + PIECE;
            PP_TRY(collect(w, i, part, from, reached, window));
            if (w->me == 0) PP_TRY(pp_weights_append(writer, window->values, window->end - window->first));
        }
        if (from) from += kept_of(w, i).n;
    }
    return PP_OK;
}

pp_status pp_parameters_append(struct pp_worker *w, struct pp_weights_writer *writer, int part, const float *from)
{
    float *memory; /* lives with the world: another worker may be copying from it when this one fails */
    int64_t *reached;
    PP_TRY(pp_world_scratch(w->world, w->me, 2 * PIECE * (int64_t)sizeof *memory, &memory));
    PP_TRY(PP_NEW(&reached, pp_shape_sharers(&w->job->model->shape)));
    struct window window = {.values = memory + PIECE, .buffer = memory};
    const pp_status status = append(w, writer, part, from, reached, &window);
    free(reached);
    return status;
}

pp_status pp_parameters_save(struct pp_worker *w, const char *file)
{
    struct pp_weights_writer *writer = NULL;
    if (w->me == 0) PP_TRY(pp_weights_create(file, w->job->model, NULL, &writer));
    pp_status status = pp_parameters_append(w, writer, 0, NULL);
    if (w->me != 0) return status;
    if (status == PP_OK && pp_weights_finite(writer)) return pp_weights_commit(writer);
    if (status == PP_OK)
        status = pp_fail(PP_INPUT,
                         "--save %s: not written, for training has diverged: its weights are not finite numbers; use a "
                         "smaller --lr",
                         file);
    pp_weights_discard(writer);
    return status;
}
