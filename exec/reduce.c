/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/reduce.h"

#include <stdlib.h>
#include <string.h>

#include "core/calls/bf16.h"

static int64_t element_bytes(const struct pp_reduce *reduce) { return pp_sum_bytes(reduce->type); }

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
            staging += reduce->piece_bytes;
        }
    }
}

static pp_status take_memory(struct pp_reduce *reduce, int64_t most_bytes)
{
    int n = reduce->group.n;
    reduce->piece_bytes = pp_reduce_piece_bytes(n, most_bytes);
    reduce->staging_bytes = pp_reduce_staging_bytes(n, most_bytes);
    PP_TRY(PP_NEW(&reduce->requests, PP_REDUCE_WINDOW * 4 * n));
    PP_TRY(PP_NEW(&reduce->pointers, PP_REDUCE_WINDOW * n));
    if (reduce->backend)
        PP_TRY(reduce->backend->alloc(reduce->device, reduce->staging_bytes, &reduce->staging));
    else
        PP_TRY(pp_alloc_bytes(&reduce->staging, 1, (size_t)reduce->staging_bytes));
    if (!reduce->backend) memset(reduce->staging, 0, (size_t)reduce->staging_bytes); /* touched, as arenas are */
    deal_memory(reduce);
    return PP_OK;
}

static pp_status create(const struct pp_reduce *fields, int me, int64_t most_bytes, struct pp_reduce **out)
{
    struct pp_reduce *reduce;
    PP_TRY(PP_NEW(&reduce, 1));
    *reduce = *fields;
    reduce->own = pp_group_member(&reduce->group, me);
    reduce->done = true;
    pp_status status = take_memory(reduce, most_bytes);
    if (status == PP_OK)
        *out = reduce;
    else
        pp_reduce_free(reduce);
    return status;
}

pp_status pp_reduce_create(struct pp_group group, int me, const struct pp_backend *backend, struct pp_device *device,
                           int64_t most_bytes, struct pp_reduce **out)
{
    const struct pp_reduce fields = {.group = group, .backend = backend, .device = device, .type = PP_SUM_FLOAT};
    return create(&fields, me, most_bytes, out);
}

pp_status pp_reduce_create_host(struct pp_group group, int me, int type, int64_t most_bytes, struct pp_reduce **out)
{
    const struct pp_reduce fields = {.group = group, .type = type};
    return create(&fields, me, most_bytes, out);
}

void pp_reduce_free(struct pp_reduce *reduce)
{
    if (!reduce) return;
    if (!reduce->backend)
        free(reduce->staging);
    else if (reduce->staging)
        reduce->backend->release(reduce->device, reduce->staging, reduce->staging_bytes);
    free(reduce->pointers);
    free(reduce->requests);
    free(reduce);
}

/* First element of member i's slice; of member n: the end. Slices start on cache lines. */
static int64_t slice_start(const struct pp_reduce *reduce, int i)
{
    int64_t align = PP_REDUCE_LINE / element_bytes(reduce);
    if (i == reduce->group.n) return reduce->elements;
    return reduce->elements * i / reduce->group.n / align * align;
}

/* The piece `k` of member i's slice, and its size; 0 where the slice has fewer. Of shares: of a round that is open. */
static unsigned char *piece(const struct pp_reduce *reduce, int i, int k, int64_t *bytes)
{
    const struct pp_share_run *run = &reduce->rounds[k % PP_REDUCE_WINDOW].run;
    *bytes = run->bytes;
    if (reduce->shares) return reduce->values + run->offset + i * run->stride;
    int64_t size = element_bytes(reduce);
    int64_t start = slice_start(reduce, i) * size + (int64_t)k * reduce->piece_bytes;
    int64_t end = slice_start(reduce, i + 1) * size;
    *bytes = start >= end ? 0 : end - start < reduce->piece_bytes ? end - start : reduce->piece_bytes;
    return reduce->values + start;
}

pp_status pp_reduce_start(struct pp_world *world, struct pp_reduce *reduce, void *values, int64_t n)
{
    reduce->values = values;
    reduce->elements = n;
    reduce->shares = NULL;
    reduce->opened = reduce->summed = reduce->closed = reduce->nrounds = 0;
    for (int i = 0; i < reduce->group.n; i++) {
        int64_t bytes = (slice_start(reduce, i + 1) - slice_start(reduce, i)) * element_bytes(reduce);
        int rounds = (int)((bytes + reduce->piece_bytes - 1) / reduce->piece_bytes);
        if (rounds > reduce->nrounds) reduce->nrounds = rounds;
    }
    reduce->done = false;
    return pp_reduce_poll(world, reduce);
}

pp_status pp_reduce_start_shares(struct pp_world *world, struct pp_reduce *reduce, void *base,
                                 const struct pp_shares *shares)
{
    reduce->values = base;
    reduce->shares = shares;
    reduce->at = 0;
    reduce->opened = reduce->summed = reduce->closed = reduce->nrounds = 0;
    for (int i = 0; i < shares->n; i++)
        reduce->nrounds += (int)((shares->tensors[i].part_bytes + reduce->piece_bytes - 1) / reduce->piece_bytes);
    reduce->done = false;
    return pp_reduce_poll(world, reduce);
}

/* Are there sums to be made, and are they, or what members have, for all? */
static bool adds(const struct pp_reduce *reduce) { return !reduce->shares || reduce->shares->use != PP_SHARES_GATHER; }
static bool tells(const struct pp_reduce *reduce)
{
    return !reduce->shares || reduce->shares->use != PP_SHARES_SCATTER;
}

static void next_pieces(struct pp_reduce *reduce, struct pp_reduce_round *round)
{
    if (!reduce->shares) return;
    round->run = pp_shares_run(reduce->shares, reduce->at, reduce->piece_bytes);
    reduce->at += round->run.bytes;
}

/* Sends this member's parts of the k-th pieces to their owners, and awaits the others' parts of its own. */
static pp_status open_round(struct pp_world *world, struct pp_reduce *reduce, int k)
{
    struct pp_reduce_round *round = &reduce->rounds[k % PP_REDUCE_WINDOW];
    int me = pp_group_worker(&reduce->group, reduce->own);
    int64_t bytes, owned;
    next_pieces(reduce, round);
    piece(reduce, reduce->own, k, &owned);
    for (int i = 0; i < reduce->group.n; i++) {
        int peer = pp_group_worker(&reduce->group, i);
        void *theirs = piece(reduce, i, k, &bytes);
        round->part_in[i].done = round->part_out[i].done = true; /* unless there is something to move */
        if (i == reduce->own || !adds(reduce)) continue;
        if (owned) PP_TRY(pp_recv(world, peer, me, PP_MESSAGE_PART, round->staged[i], owned, &round->part_in[i]));
        if (bytes) PP_TRY(pp_send(world, me, peer, PP_MESSAGE_PART, theirs, bytes, &round->part_out[i]));
    }
    return PP_OK;
}

static void add_floats(float *to, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = a[i] + b[i];
}

static void add_doubles(double *to, const double *a, const double *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = a[i] + b[i];
}

static void add_bf16(uint16_t *to, const uint16_t *a, const uint16_t *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = pp_bf16(pp_bf16_float(a[i]) + pp_bf16_float(b[i]));
}

static void add(const struct pp_reduce *reduce, void *to, const void *a, const void *b, int64_t n)
{
    if (reduce->backend)
        reduce->backend->add(reduce->device, to, a, b, n);
    else if (reduce->type == PP_SUM_DOUBLE)
        add_doubles(to, a, b, n);
    else if (reduce->type == PP_SUM_BF16)
        add_bf16(to, a, b, n);
    else
        add_floats(to, a, b, n);
}

/* ((g0 + g1) + g2) + ...: the sum so far moves into this member's own piece when its turn comes, before that it lies
 * where g0 was received. */
static void add_parts(struct pp_reduce *reduce, const struct pp_reduce_round *round, unsigned char *own, int64_t bytes)
{
    unsigned char *sum = reduce->own == 0 ? own : round->staged[0];
    for (int i = 1; i < reduce->group.n; i++) {
        unsigned char *part = i == reduce->own ? own : round->staged[i];
        unsigned char *to = i >= reduce->own ? own : sum;
        add(reduce, to, sum, part, bytes / element_bytes(reduce));
        sum = to;
    }
}

static pp_status sum_round(struct pp_world *world, struct pp_reduce *reduce, int k)
{
    struct pp_reduce_round *round = &reduce->rounds[k % PP_REDUCE_WINDOW];
    int me = pp_group_worker(&reduce->group, reduce->own);
    int64_t bytes, owned;
    unsigned char *own = piece(reduce, reduce->own, k, &owned);
    if (owned && adds(reduce)) add_parts(reduce, round, own, owned);
    for (int i = 0; i < reduce->group.n; i++) {
        int peer = pp_group_worker(&reduce->group, i);
        void *theirs = piece(reduce, i, k, &bytes);
        round->sum_in[i].done = round->sum_out[i].done = true;
        if (i == reduce->own || !tells(reduce)) continue;
        if (owned) PP_TRY(pp_send(world, me, peer, PP_MESSAGE_SUM, own, owned, &round->sum_out[i]));
        if (bytes) PP_TRY(pp_recv(world, peer, me, PP_MESSAGE_SUM, theirs, bytes, &round->sum_in[i]));
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
