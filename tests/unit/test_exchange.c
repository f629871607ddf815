/* SPDX-License-Identifier: Apache-2.0
 *
 * All to all: pieces come to where their experts are, in the order of the workers that they come from, and back to
 * where they were; or chunks of rows come to all, in the order of the rows' tokens, and back what each has for them.
 * Shifts: what each worker has comes to the next one. By messages, and by carriers over the queue device for tests with
 * random delays.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/plan/movers.h"
#include "crew.h"
#include "exec/carrier.h"
#include "queue_device.h"

enum { ROUNDS = 3, WORDS = 700, MOST_EXPERTS = 4, MOST_WORKERS = 5, MOST = MOST_EXPERTS * MOST_WORKERS * WORDS };

#define OK(expression)                                                                                                 \
    do {                                                                                                               \
        if ((expression) != PP_OK) fail_msg("%s", pp_message());                                                       \
    } while (0)

struct shape {
    const struct pp_carrier *carrier; /* NULL: messages */
    int experts, words;               /* of each worker; of a piece */
    bool halves;                      /* pieces are chunks: experts, an even number, is twice the rows */
    bool shift;                       /* a piece to the next worker alone: experts is 1 */
};

/* What an exchange has at most at one end. */
static int64_t elements_of(const struct shape *s, int workers)
{
    return (int64_t)(s->shift ? 1 : workers) * s->experts * s->words;
}

/* Of what a worker has for an expert of another one. */
static int32_t word_of(int source, int owner, int expert, int i, int round)
{
    return ((((round * MOST_WORKERS + source) * MOST_WORKERS + owner) * MOST_EXPERTS + expert) * WORDS) + i;
}

/* In the order of all experts: what worker me has for each of them. */
static void fill(const struct shape *s, int workers, int me, int round, int32_t *out)
{
    for (int owner = 0; owner < workers; owner++)
        for (int expert = 0; expert < s->experts; expert++)
            for (int i = 0; i < s->words; i++) *out++ = word_of(me, owner, expert, i, round);
}

/* The worker that has a chunk of a row, of twice as many as there are workers; which of the two that it has. */
static int owner_of(int chunk, int workers) { return chunk < workers ? chunk : 2 * workers - 1 - chunk; }

/* Of all rows all chunks: what worker `of` has for each, or, -1, what their owners have for all: as for worker 0. */
static void fill_rows(const struct shape *s, int workers, int of, int round, int32_t *out)
{
    for (int piece = 0; piece < s->experts * workers; piece++) {
        const int chunk = piece % (2 * workers), owner = owner_of(chunk, workers),
                  k = piece / (2 * workers) * 2 + (chunk >= workers);
        for (int i = 0; i < s->words; i++)
            *out++ = of < 0 ? word_of(owner, 0, k, i, round) : word_of(of, owner, k, i, round);
    }
}

static pp_status check_rows(const struct shape *s, int workers, int round, const int32_t *got)
{
    static _Thread_local int32_t wanted[MOST];
    fill_rows(s, workers, -1, round, wanted);
    if (!memcmp(got, wanted, sizeof *got * (size_t)(workers * s->experts * s->words))) return PP_OK;
    return pp_fail(PP_INTERNAL, "chunks are not in the order of their rows");
}

/* What worker after worker has for the chunks of this one. */
static pp_status check_parts(const struct shape *s, int workers, int me, int round, const int32_t *got)
{
    for (int of = 0; of < workers; of++)
        for (int k = 0; k < s->experts; k++)
            for (int i = 0; i < s->words; i++)
                if (*got++ != word_of(of, me, k, i, round))
                    return pp_fail(PP_INTERNAL, "chunk %d has not word %d of worker %d", k, i, of);
    return PP_OK;
}

/* Of each of its experts, what worker after worker had for it. */
static pp_status check_there(const struct shape *s, int workers, int me, int round, const int32_t *got)
{
    if (s->halves) return check_rows(s, workers, round, got);
    for (int expert = 0; expert < s->experts; expert++)
        for (int source = 0; source < workers; source++)
            for (int i = 0; i < s->words; i++)
                if (*got++ != word_of(source, me, expert, i, round))
                    return pp_fail(PP_INTERNAL, "expert %d has not word %d of worker %d", expert, i, source);
    return PP_OK;
}

/* What is sent there: chunks are the same for all, as if for worker 0. */
static void fill_here(const struct shape *s, int workers, int me, int round, int32_t *out)
{
    fill(s, s->halves ? 1 : workers, me, round, out);
}

static pp_status check_here(const struct shape *s, int workers, int me, int round, const int32_t *got)
{
    static _Thread_local int32_t wanted[MOST];
    if (s->halves) return check_parts(s, workers, me, round, got);
    fill(s, workers, me, round, wanted);
    if (!memcmp(got, wanted, sizeof *got * (size_t)(workers * s->experts * s->words))) return PP_OK;
    return pp_fail(PP_INTERNAL, "what has come back is not what was sent");
}

static struct pp_pieces pieces_of(const struct shape *s, int workers, const void *from, void *to, bool back)
{
    const struct pp_join_call call = {.op = s->shift ? PP_JOIN_SHIFT : PP_JOIN_ALL_TO_ALL,
                                      .memory = to,
                                      .elements = elements_of(s, workers),
                                      .type = PP_SUM_FLOAT,
                                      .from = from,
                                      .each = s->shift ? 0 : s->experts,
                                      .back = back,
                                      .halves = s->halves};
    return pp_pieces_of(&call, workers);
}

/* What the worker has that is so many places before this one. */
static void fill_shifted(const struct shape *s, int workers, int me, int places, int round, int32_t *out)
{
    for (int i = 0; i < s->words; i++) out[i] = word_of((me + workers - places) % workers, 0, 0, i, round);
}

static pp_status check_shifted(const struct shape *s, int workers, int me, int places, int round, const int32_t *got)
{
    int32_t wanted[WORDS];
    fill_shifted(s, workers, me, places, round, wanted);
    if (!memcmp(got, wanted, sizeof *got * (size_t)s->words)) return PP_OK;
    return pp_fail(PP_INTERNAL, "after %d shifts it is not what worker %d has", places,
                   (me + workers - places) % workers);
}

/* --- messages --- */

static pp_status exchange(struct pp_world *world, int me, struct pp_exchange *x, const struct pp_pieces *pieces)
{
    PP_TRY(pp_exchange_start(world, x, pieces));
    for (int64_t idle = 0; !x->done;) {
        const unsigned seen = pp_bell_seen(world, me);
        PP_TRY(pp_exchange_poll(world, x));
        PP_TRY(pp_world_check(world));
        if (!x->done) pp_world_wait(world, me, seen, &idle);
    }
    return PP_OK;
}

static pp_status by_messages(struct pp_world *world, int me, void *arg)
{
    const struct shape *s = arg;
    static _Thread_local int32_t here[MOST], there[MOST], again[MOST];
    struct pp_exchange *x;
    PP_TRY(pp_exchange_create(pp_group_all(world), me, s->experts, &x));
    for (int round = 0; round < ROUNDS; round++) {
        const struct pp_pieces to = pieces_of(s, world->workers, here, there, false),
                               back = pieces_of(s, world->workers, there, again, true);
        fill_here(s, world->workers, me, round, here);
        PP_TRY(exchange(world, me, x, &to));
        PP_TRY(check_there(s, world->workers, me, round, there));
        if (s->halves) fill_rows(s, world->workers, me, round, there);
        PP_TRY(exchange(world, me, x, &back));
        PP_TRY(check_here(s, world->workers, me, round, again));
    }
    PP_TRY(pp_barrier(world, me));
    pp_exchange_free(x);
    return PP_OK;
}

/* Once, and on from there. */
static pp_status shift_by_messages(struct pp_world *world, int me, void *arg)
{
    const struct shape *s = arg;
    const int workers = world->workers;
    int32_t memory[3][WORDS + 1];
    struct pp_exchange *x;
    PP_TRY(pp_exchange_create(pp_group_all(world), me, 1, &x));
    for (int round = 0; round < ROUNDS; round++) {
        fill_shifted(s, workers, me, 0, round, memory[0]);
        for (int k = 1; k < 3; k++) {
            const struct pp_pieces pieces = pieces_of(s, workers, memory[k - 1], memory[k], false);
            memory[k][s->words] = -1;
            PP_TRY(exchange(world, me, x, &pieces));
            PP_TRY(check_shifted(s, workers, me, k, round, memory[k]));
            PP_TRY(check_shifted(s, workers, me, k - 1, round, memory[k - 1]));
            if (memory[k][s->words] != -1) return pp_fail(PP_INTERNAL, "more came than one worker has");
        }
    }
    PP_TRY(pp_barrier(world, me));
    pp_exchange_free(x);
    return PP_OK;
}

/* --- carriers --- */

struct at {
    struct pp_port port;
    struct pp_sum *sum;
    struct pp_mark *written;
    int32_t *memory[3]; /* of the device: here, there, here again */
};

static pp_status open_at(struct at *at, const struct shape *s, struct pp_world *world, int me)
{
    const struct pp_device_spec device = {.worker = me, .workers = world->workers, .on_host = 1, .threads = 1};
    at->port = (struct pp_port){.world = world, .backend = &pp_backend_queued, .me = me};
    PP_TRY(at->port.backend->open(&device, &at->port.device));
    const int64_t elements = elements_of(s, world->workers);
    const struct pp_sum_spec spec = {.port = at->port,
                                     .group = pp_group_all(world),
                                     .most_elements = 1,
                                     .type = PP_SUM_FLOAT,
                                     .pieces = s->experts,
                                     .exchanged_bytes = elements * (int64_t)sizeof(int32_t)};
    for (int i = 0; i < 3; i++) {
        void *memory;
        PP_TRY(at->port.backend->alloc(at->port.device, elements * (int64_t)sizeof(int32_t), &memory));
        at->memory[i] = memory;
    }
    PP_TRY(at->port.backend->queue->mark_create(at->port.device, false, &at->written));
    return s->carrier->sum_open(&spec, &at->sum);
}

static void close_at(struct at *at, const struct shape *s)
{
    const int64_t bytes = elements_of(s, at->port.world->workers) * (int64_t)sizeof(int32_t);
    s->carrier->sum_close(at->sum);
    at->port.backend->queue->mark_destroy(at->port.device, at->written);
    for (int i = 0; i < 3; i++) at->port.backend->release(at->port.device, at->memory[i], bytes);
    at->port.backend->close(at->port.device);
}

static pp_status carry(struct at *at, const struct shape *s, const struct pp_pieces *pieces)
{
    const struct pp_queue_ops *ops = at->port.backend->queue;
    struct pp_device *device = at->port.device;
    struct pp_parcel parcel = {.memory = pieces->to, .pieces = pieces, .bytes = pp_pieces_bytes(pieces)};
    bool reached = false;
    PP_TRY(ops->mark_create(device, false, &parcel.done));
    PP_TRY(ops->record(device, ops->compute(device), at->written));
    PP_TRY(s->carrier->sum_start(at->sum, &parcel, at->written));
    while (!parcel.issued) {
        PP_TRY(s->carrier->sum_poll(at->sum, &parcel));
        PP_TRY(pp_world_check(at->port.world));
        if (!parcel.issued) queued_nap();
    }
    PP_TRY(ops->wait(device, ops->compute(device), parcel.done)); /* the next one's memory is written behind it */
    while (!reached) {
        PP_TRY(ops->reached(device, parcel.done, &reached));
        if (!reached) queued_nap();
    }
    ops->mark_destroy(device, parcel.done);
    return PP_OK;
}

static pp_status carry_round(struct at *at, const struct shape *s, int round)
{
    static _Thread_local int32_t host[MOST];
    const int workers = at->port.world->workers, me = at->port.me;
    const int64_t bytes = elements_of(s, workers) * (int64_t)sizeof *host;
    const struct pp_pieces to = pieces_of(s, workers, at->memory[0], at->memory[1], false),
                           back = pieces_of(s, workers, at->memory[1], at->memory[2], true);
    fill_here(s, workers, me, round, host);
    PP_TRY(at->port.backend->upload(at->port.device, at->memory[0], host, bytes));
    PP_TRY(carry(at, s, &to));
    PP_TRY(at->port.backend->download(at->port.device, host, at->memory[1], bytes));
    PP_TRY(check_there(s, workers, me, round, host));
    if (s->halves) fill_rows(s, workers, me, round, host);
    if (s->halves) PP_TRY(at->port.backend->upload(at->port.device, at->memory[1], host, bytes));
    PP_TRY(carry(at, s, &back));
    PP_TRY(at->port.backend->download(at->port.device, host, at->memory[2], bytes));
    return check_here(s, workers, me, round, host);
}

/* Once, and on from there. */
static pp_status carry_shifts(struct at *at, const struct shape *s, int round)
{
    const int workers = at->port.world->workers, me = at->port.me;
    const int64_t bytes = s->words * (int64_t)sizeof(int32_t);
    int32_t host[WORDS];
    fill_shifted(s, workers, me, 0, round, host);
    PP_TRY(at->port.backend->upload(at->port.device, at->memory[0], host, bytes));
    for (int k = 1; k < 3; k++) {
        const struct pp_pieces pieces = pieces_of(s, workers, at->memory[k - 1], at->memory[k], false);
        PP_TRY(carry(at, s, &pieces));
        PP_TRY(at->port.backend->download(at->port.device, host, at->memory[k], bytes));
        PP_TRY(check_shifted(s, workers, me, k, round, host));
    }
    return PP_OK;
}

static pp_status by_carrier(struct pp_world *world, int me, void *arg)
{
    struct at at = {0};
    PP_TRY(open_at(&at, arg, world, me));
    for (int round = 0; round < ROUNDS; round++)
        PP_TRY((((const struct shape *)arg)->shift ? carry_shifts : carry_round)(&at, arg, round));
    PP_TRY(pp_barrier(world, me));
    close_at(&at, arg);
    return PP_OK;
}

static void check(struct shape s, int workers)
{
    const struct queued_settings settings = {.seed = 5, .most_delay_us = 50};
    s.carrier = NULL;
    OK(crew_run(workers, s.shift ? shift_by_messages : by_messages, &s));
    s.carrier = &pp_carrier_inproc;
    queued_set(&settings);
    OK(crew_run(workers, by_carrier, &s));
    /* Of each member one, or of chunks two, to there and back, however many pieces it has; of a shift one. */
    assert_int_equal(queued_copies(), ROUNDS * 2 * workers * (s.shift ? 1 : workers * (s.halves ? 2 : 1)));
    s.carrier = &pp_carrier_staged;
    OK(crew_run(workers, by_carrier, &s));
}

static void pieces_come_and_go_back(void **state)
{
    (void)state;
    struct shape s = {0};
    for (int workers = 2; workers <= MOST_WORKERS; workers++)
        for (s.experts = 1; s.experts < MOST_EXPERTS; s.experts++)
            for (s.words = 1; s.words <= WORDS; s.words += WORDS - 1) check(s, workers);
    queued_set(NULL);
}

static void chunks_come_to_all(void **state)
{
    (void)state;
    struct shape s = {.halves = true};
    for (int workers = 2; workers <= MOST_WORKERS; workers++)
        for (s.experts = 2; s.experts <= MOST_EXPERTS; s.experts += 2)
            for (s.words = 1; s.words <= WORDS; s.words += WORDS - 1) check(s, workers);
    queued_set(NULL);
}

static void shifts_come_to_the_next(void **state)
{
    (void)state;
    struct shape s = {.experts = 1, .shift = true};
    for (int workers = 2; workers <= MOST_WORKERS; workers++)
        for (s.words = 1; s.words <= WORDS; s.words += WORDS - 1) {
            const struct pp_pieces pieces = pieces_of(&s, workers, NULL, NULL, false);
            assert_int_equal(pp_pieces_bytes(&pieces), s.words * sizeof(int32_t));
            assert_int_equal(pp_pieces_sent_bytes(&pieces), s.words * sizeof(int32_t));
            check(s, workers);
        }
    queued_set(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_come_and_go_back), cmocka_unit_test(chunks_come_to_all),
                                       cmocka_unit_test(shifts_come_to_the_next)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
