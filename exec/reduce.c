/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/reduce.h"

#include <stdlib.h>

enum { PIECE = PP_REDUCE_PIECE_BYTES / (int)sizeof(float), ALIGN = 16 };

static void deal_memory(struct pp_reduce *reduce)
{
    struct pp_request *request = reduce->requests;
    unsigned char **pointer = reduce->pointers, *staging = reduce->staging;
    int n = reduce->group.n;
    for (int w = 0; w < PP_REDUCE_WINDOW; w++) {
        struct pp_reduce_round *round = &reduce->rounds[w];
        struct pp_request **arrays[] = {&round->part_out, &round->part_in, &round->sum_out, &round->sum_in};
        for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++, request += n) *arrays[i] = request;
        round->staged = pointer;
        pointer += n;
        for (int i = 0; i < n; i++) {
            if (i == reduce->own) continue;
            round->staged[i] = staging;
            staging += PP_REDUCE_PIECE_BYTES;
        }
    }
}

pp_status pp_reduce_create(struct pp_group group, int me, const struct pp_backend *backend, struct pp_device *device,
                           struct pp_reduce **out)
{
    struct pp_reduce *reduce;
    PP_TRY(PP_NEW(&reduce, 1));
    *reduce = (struct pp_reduce){
        .group = group, .own = pp_group_member(&group, me), .backend = backend, .device = device, .done = true};
    reduce->staging_bytes = (int64_t)PP_REDUCE_WINDOW * (group.n - 1) * PP_REDUCE_PIECE_BYTES;
    pp_status status = PP_NEW(&reduce->requests, PP_REDUCE_WINDOW * 4 * group.n);
    if (status == PP_OK) status = PP_NEW(&reduce->pointers, PP_REDUCE_WINDOW * group.n);
    if (status == PP_OK) status = backend->alloc(device, reduce->staging_bytes, &reduce->staging);
    if (status != PP_OK) {
        pp_reduce_free(reduce);
        return status;
    }
    deal_memory(reduce);
    *out = reduce;
    return PP_OK;
}

void pp_reduce_free(struct pp_reduce *reduce)
{
    if (!reduce) return;
    if (reduce->staging) reduce->backend->release(reduce->device, reduce->staging, reduce->staging_bytes);
    free(reduce->pointers);
    free(reduce->requests);
    free(reduce);
}

/* First element of replica i's slice; of replica n: the end. Slices start on cache lines. */
static int64_t slice_start(const struct pp_reduce *reduce, int i)
{
    if (i == reduce->group.n) return reduce->elements;
    return reduce->elements * i / reduce->group.n / ALIGN * ALIGN;
}

/* The piece `k` of replica i's slice; elements 0 where the slice has fewer. */
static float *piece(const struct pp_reduce *reduce, int i, int k, int64_t *elements)
{
    int64_t start = slice_start(reduce, i) + (int64_t)k * PIECE, end = slice_start(reduce, i + 1);
    *elements = start >= end ? 0 : end - start < PIECE ? end - start : PIECE;
    return reduce->gradient + start;
}

pp_status pp_reduce_start(struct pp_world *world, struct pp_reduce *reduce, float *gradient, int64_t n)
{
    reduce->gradient = gradient;
    reduce->elements = n;
    reduce->opened = reduce->summed = reduce->closed = reduce->nrounds = 0;
    for (int i = 0; i < reduce->group.n; i++) {
        int64_t length = slice_start(reduce, i + 1) - slice_start(reduce, i);
        int rounds = (int)((length + PIECE - 1) / PIECE);
        if (rounds > reduce->nrounds) reduce->nrounds = rounds;
    }
    reduce->done = false;
    return pp_reduce_poll(world, reduce);
}

/* Sends this replica's parts of the k-th pieces to their owners, and awaits the others' parts of its own. */
static pp_status open_round(struct pp_world *world, struct pp_reduce *reduce, int k)
{
    struct pp_reduce_round *round = &reduce->rounds[k % PP_REDUCE_WINDOW];
    int me = pp_group_worker(&reduce->group, reduce->own);
    int64_t n, owned;
    piece(reduce, reduce->own, k, &owned);
    for (int i = 0; i < reduce->group.n; i++) {
        int peer = pp_group_worker(&reduce->group, i);
        float *theirs = piece(reduce, i, k, &n);
        round->part_in[i].done = round->part_out[i].done = true; /* unless there is something to move */
        if (i == reduce->own) continue;
        if (owned)
            PP_TRY(pp_recv(world, peer, me, PP_MESSAGE_PART, round->staged[i], owned * (int64_t)sizeof(float),
                           &round->part_in[i]));
        if (n)
            PP_TRY(pp_send(world, me, peer, PP_MESSAGE_PART, theirs, n * (int64_t)sizeof(float), &round->part_out[i]));
    }
    return PP_OK;
}

/* ((g0 + g1) + g2) + ...: the sum so far moves into this replica's own piece when its turn comes, before that it lies
 * where g0 was received. */
static void add_parts(struct pp_reduce *reduce, const struct pp_reduce_round *round, float *own, int64_t n)
{
    float *sum = reduce->own == 0 ? own : (float *)round->staged[0];
    for (int i = 1; i < reduce->group.n; i++) {
        float *part = i == reduce->own ? own : (float *)round->staged[i];
        float *to = i >= reduce->own ? own : sum;
        reduce->backend->add(reduce->device, to, sum, part, n);
        sum = to;
    }
}

static pp_status sum_round(struct pp_world *world, struct pp_reduce *reduce, int k)
{
    struct pp_reduce_round *round = &reduce->rounds[k % PP_REDUCE_WINDOW];
    int me = pp_group_worker(&reduce->group, reduce->own);
    int64_t n, owned;
    float *own = piece(reduce, reduce->own, k, &owned);
    if (owned) add_parts(reduce, round, own, owned);
    for (int i = 0; i < reduce->group.n; i++) {
        int peer = pp_group_worker(&reduce->group, i);
        float *theirs = piece(reduce, i, k, &n);
        round->sum_in[i].done = round->sum_out[i].done = true;
        if (i == reduce->own) continue;
        if (owned)
            PP_TRY(pp_send(world, me, peer, PP_MESSAGE_SUM, own, owned * (int64_t)sizeof(float), &round->sum_out[i]));
        if (n) PP_TRY(pp_recv(world, peer, me, PP_MESSAGE_SUM, theirs, n * (int64_t)sizeof(float), &round->sum_in[i]));
    }
    return PP_OK;
}

static pp_status test_all(struct pp_world *world, struct pp_request *requests, int n, bool *done)
{
    for (int i = 0; i < n; i++) {
        PP_TRY(pp_test(world, &requests[i]));
        *done = *done && requests[i].done;
    }
    return PP_OK;
}

/* Rounds are summed and closed in order, so that both message kinds keep the same order at both ends. A sum comes
 * back into the place that the part was sent from, hence the parts must be gone before. */
pp_status pp_reduce_poll(struct pp_world *world, struct pp_reduce *reduce)
{
    while (!reduce->done) {
        int n = reduce->group.n, before = reduce->opened + reduce->summed + reduce->closed;
        if (reduce->opened < reduce->nrounds && reduce->opened < reduce->closed + PP_REDUCE_WINDOW)
            PP_TRY(open_round(world, reduce, reduce->opened++));
        if (reduce->summed < reduce->opened) {
            struct pp_reduce_round *round = &reduce->rounds[reduce->summed % PP_REDUCE_WINDOW];
            bool done = true;
            PP_TRY(test_all(world, round->part_in, n, &done));
            PP_TRY(test_all(world, round->part_out, n, &done));
            if (done) PP_TRY(sum_round(world, reduce, reduce->summed++));
        }
        if (reduce->closed < reduce->summed) {
            struct pp_reduce_round *round = &reduce->rounds[reduce->closed % PP_REDUCE_WINDOW];
            bool done = true;
            PP_TRY(test_all(world, round->sum_in, n, &done));
            PP_TRY(test_all(world, round->sum_out, n, &done));
            if (done) reduce->closed++;
        }
        reduce->done = reduce->closed == reduce->nrounds;
        if (before == reduce->opened + reduce->summed + reduce->closed) return PP_OK;
    }
    return PP_OK;
}
