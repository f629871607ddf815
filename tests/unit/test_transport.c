/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages, collectives and the gradient reduction, with fewer and with more workers than cores: by every transport
 * between threads, or, where a launcher started several of this program, by the one between processes that it is given.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "core/plan/movers.h"
#include "crew.h"
#include "exec/agree.h"
#include "exec/collective.h"
#include "exec/reduce.h"

/* What is tested. */
static const struct pp_transport *transport;
static struct pp_processes processes;

/* Other processes would wait for one that goes on to the next test. */
static void fail_everywhere(void)
{
    fprintf(stderr, "process %d: %s: %s\n", processes.index, transport->name, pp_message());
    if (processes.count > 1) transport->abort(1);
    fail();
}

#define OK(expression)                                                                                                 \
    do {                                                                                                               \
        if ((expression) != PP_OK) fail_everywhere();                                                                  \
    } while (0)

/* As many workers, or a few more: the same number in each process. */
static int even(int workers) { return (workers + processes.count - 1) / processes.count * processes.count; }

static pp_status run(int workers, crew_fn fn, void *arg)
{
    return crew_run_on(transport, &processes, workers, fn, arg);
}

/* --- messages --- */

enum { MESSAGES = 200, MAX_WORDS = 300 };

static int words_of(int src, int dst, int kind, int i) { return (i * 7 + src * 3 + dst * 5 + kind) % MAX_WORDS; }

static void fill(int *words, int n, int src, int dst, int kind, int i)
{
    for (int w = 0; w < n; w++) words[w] = ((i * 31 + w) * 31 + src * 5 + dst) * 31 + kind;
}

struct lane {
    struct pp_request sends[MESSAGES], receives[MESSAGES];
    int sent[MESSAGES][MAX_WORDS], received[MESSAGES][MAX_WORDS];
};

static pp_status post_all(struct pp_world *world, int me, struct lane *all)
{
    for (int i = 0; i < MESSAGES; i++)
        for (int l = 0; l < world->workers * PP_MESSAGE_KINDS; l++) {
            int peer = l / PP_MESSAGE_KINDS, kind = l % PP_MESSAGE_KINDS, out = words_of(me, peer, kind, i);
            all[l].sends[i].done = all[l].receives[i].done = true;
            if (peer == me) continue;
            fill(all[l].sent[i], out, me, peer, kind, i);
            PP_TRY(pp_send(world, me, peer, kind, all[l].sent[i], out * 4, &all[l].sends[i]));
            PP_TRY(pp_recv(world, peer, me, kind, all[l].received[i], words_of(peer, me, kind, i) * 4,
                           &all[l].receives[i]));
        }
    return PP_OK;
}

static pp_status await_all(struct pp_world *world, int me, struct lane *all)
{
    for (int64_t idle_since = 0;;) {
        unsigned seen = pp_bell_seen(world, me);
        bool done = true;
        for (int l = 0; l < world->workers * PP_MESSAGE_KINDS; l++)
            for (int i = 0; i < MESSAGES; i++) {
                PP_TRY(pp_test(world, &all[l].sends[i]));
                PP_TRY(pp_test(world, &all[l].receives[i]));
                done = done && all[l].sends[i].done && all[l].receives[i].done;
            }
        if (done) return PP_OK;
        PP_TRY(pp_world_check(world));
        pp_world_wait(world, me, seen, &idle_since);
    }
}

/* Everything to everyone in every kind, all posted at once: far more than are published at a time. */
static pp_status everything_to_everyone(struct pp_world *world, int me, void *arg)
{
    (void)arg;
    struct lane *all = calloc((size_t)world->workers * PP_MESSAGE_KINDS, sizeof *all);
    PP_TRY(post_all(world, me, all));
    PP_TRY(await_all(world, me, all));
    for (int l = 0; l < world->workers * PP_MESSAGE_KINDS; l++)
        for (int i = 0; i < MESSAGES; i++) {
            int peer = l / PP_MESSAGE_KINDS, kind = l % PP_MESSAGE_KINDS, expected[MAX_WORDS];
            if (peer == me) continue;
            fill(expected, words_of(peer, me, kind, i), peer, me, kind, i);
            if (memcmp(expected, all[l].received[i], (size_t)words_of(peer, me, kind, i) * 4))
                return pp_fail(PP_INTERNAL, "message %d of kind %d from %d is wrong", i, kind, peer);
        }
    free(all);
    return PP_OK;
}

static void messages_arrive_in_order(void **state)
{
    (void)state;
    OK(run(even(2), everything_to_everyone, NULL));
    OK(run(even(5), everything_to_everyone, NULL));
}

static pp_status wrong_size(struct pp_world *world, int me, void *arg)
{
    (void)arg;
    static int words[4], room[4];
    if (me == 0) return pp_send_now(world, 0, 1, PP_MESSAGE_FORWARD, words, 16);
    return pp_recv_now(world, 0, 1, PP_MESSAGE_FORWARD, room, 12);
}

static void wrong_sizes_are_told(void **state)
{
    (void)state;
    assert_int_equal(run(2, wrong_size, NULL), PP_INTERNAL);
    assert_non_null(strstr(pp_message(), "16 bytes"));
}

/* Nobody ever sends: the others must end when one fails. */
static pp_status one_fails(struct pp_world *world, int me, void *arg)
{
    (void)arg;
    int word;
    if (me == 1) return pp_fail(PP_IO, "the test's failure");
    return pp_recv_now(world, 1, me, PP_MESSAGE_CONTROL, &word, sizeof word);
}

static void a_failure_stops_all(void **state)
{
    (void)state;
    int64_t start = pp_now_ns();
    assert_int_equal(run(6, one_fails, NULL), PP_IO);
    assert_non_null(strstr(pp_message(), "the test's failure"));
    assert_true(pp_now_ns() - start < 20000000000);
}

/* Whoever has to give up returns, and its stack is used for something else, while another may just be taking what it
 * sent, or writes what it was to receive. */
static void a_failure_leaves_no_message_on_a_stack(void **state)
{
    static const struct pp_processes alone = {.count = 1, .on_host = 1, .hosts = 1};
    struct pp_world *world;
    struct pp_request request;
    int sent = 7, taken = 0;
    (void)state;
    OK(pp_world_open(&pp_transport_inproc, &alone, 2, 1, &world));
    pp_world_stop(world, PP_IO);
    assert_int_equal(pp_broadcast(world, 0, 0, &sent, sizeof sent), PP_PEER);
    sent = 8;
    OK(pp_recv(world, 0, 1, PP_MESSAGE_CONTROL, &taken, sizeof taken, &request));
    OK(pp_test(world, &request));
    assert_true(request.done);
    assert_int_equal(taken, 7);
    pp_world_close(world);
}

static void worlds_must_divide(void **state)
{
    (void)state;
    struct pp_processes three = {.count = 3, .on_host = 3, .hosts = 1};
    struct pp_world *world;
    assert_int_equal(pp_world_open(transport, &three, 4, 1, &world), PP_USAGE);
    assert_non_null(strstr(pp_message(), "4 workers"));
    assert_null(world);
}

/* --- collectives --- */

static pp_status collectives(struct pp_world *world, int me, void *arg)
{
    (void)arg;
    struct block {
        int worker, round, text[5];
    } all[CREW_MAX];
    for (int round = 0; round < 20; round++) {
        struct block mine = {me, round, {me * round}};
        PP_TRY(pp_allgather(world, me, &mine, sizeof mine, all));
        for (int i = 0; i < world->workers; i++)
            if (all[i].worker != i || all[i].round != round || all[i].text[0] != i * round)
                return pp_fail(PP_INTERNAL, "round %d: block %d is worker %d's of round %d", round, i, all[i].worker,
                               all[i].round);
        int root = round % world->workers, value = me == root ? 1000 + round : 0;
        PP_TRY(pp_broadcast(world, me, root, &value, sizeof value));
        if (value != 1000 + round) return pp_fail(PP_INTERNAL, "round %d: %d was broadcast", round, value);
        PP_TRY(pp_barrier(world, me));
    }
    return PP_OK;
}

static void collectives_of_any_size(void **state)
{
    (void)state;
    for (int workers = even(1); workers <= 9; workers += processes.count) OK(run(workers, collectives, NULL));
}

/* --- reduction --- */

static pp_status plain_alloc(struct pp_device *device, int64_t bytes, void **out)
{
    (void)device;
    return pp_alloc_bytes(out, 1, (size_t)bytes);
}

static void plain_release(struct pp_device *device, void *memory, int64_t bytes)
{
    (void)device;
    (void)bytes;
    free(memory);
}

static void plain_add(struct pp_device *device, float *to, const float *a, const float *b, int64_t n)
{
    (void)device;
    for (int64_t i = 0; i < n; i++) to[i] = a[i] + b[i];
}

static const struct pp_backend plain = {.alloc = plain_alloc, .release = plain_release, .add = plain_add};

/* Values of very different sizes, so that another order of additions gives other bits. */
static float value_of(int replica, int64_t i)
{
    uint32_t x = (uint32_t)(i * 2654435761u) ^ (uint32_t)replica * 40503u;
    x ^= x >> 15;
    x *= 2246822519u;
    return (float)(int32_t)x * (replica % 2 ? 1e-3f : 1e-9f);
}

struct reduction {
    int ranks;
    int64_t n;
    struct pp_reduce *reduces[CREW_MAX];
    float *gradients[CREW_MAX];
};

static pp_status check_sum(const struct reduction *r, const float *gradient, int replicas)
{
    for (int64_t i = 0; i < r->n; i++) {
        float sum = value_of(0, i);
        for (int k = 1; k < replicas; k++) sum += value_of(k, i);
        if (memcmp(&sum, &gradient[i], sizeof sum))
            return pp_fail(PP_INTERNAL, "element %lld is %g, not %g", (long long)i, gradient[i], sum);
    }
    return PP_OK;
}

static pp_status reduce(struct pp_world *world, int me, void *arg)
{
    struct reduction *r = arg;
    int replicas = world->workers / r->ranks, replica = me / r->ranks;
    struct pp_group group = {me % r->ranks, r->ranks, replicas};
    PP_TRY(pp_alloc_bytes(&r->gradients[me], (size_t)r->n + 1, sizeof(float)));
    float *gradient = r->gradients[me];
    PP_TRY(pp_reduce_create(group, me, &plain, NULL, r->n * (int64_t)sizeof(float), &r->reduces[me]));
    for (int round = 0; round < 2; round++) { /* one after another on the same channels */
        for (int64_t i = 0; i < r->n; i++) gradient[i] = value_of(replica, i);
        PP_TRY(pp_reduce_start(world, r->reduces[me], gradient, r->n));
        for (int64_t idle_since = 0; !r->reduces[me]->done;) {
            unsigned seen = pp_bell_seen(world, me);
            PP_TRY(pp_reduce_poll(world, r->reduces[me]));
            PP_TRY(pp_world_check(world));
            if (!r->reduces[me]->done) pp_world_wait(world, me, seen, &idle_since);
        }
        PP_TRY(check_sum(r, gradient, replicas));
    }
    return PP_OK;
}

static void sums_have_the_bits_of_replica_order(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 15, 64, 1000, 262144, 1000003};
    static const struct {
        int ranks, workers;
    } shapes[] = {{1, 2}, {2, 4}, {1, 3}, {1, 5}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            struct reduction r = {.ranks = shapes[s].ranks, .n = sizes[i]};
            pp_status status = run(even(shapes[s].workers), reduce, &r);
            for (int w = 0; w < CREW_MAX; w++) {
                pp_reduce_free(r.reduces[w]);
                free(r.gradients[w]);
            }
            OK(status);
        }
}

/* --- the registry --- */

static void transports_are_those_of_the_list(void **state)
{
    (void)state;
    int n = 0;
    for (int i = 0; i < pp_nmovers; i++) {
        if (pp_movers[i].moves != PP_OF_HOSTS || !pp_transports[n]) continue;
        if (!strcmp(pp_movers[i].name, pp_transports[n]->name))
            n++;
        else
            assert_string_not_equal(pp_movers[i].needs, "NOTHING"); /* it is not in this build */
    }
    assert_null(pp_transports[n]);
    assert_string_equal(pp_transports[0]->name, pp_transport_inproc.name);
    assert_null(pp_mover_find("auto", PP_OF_HOSTS));
    assert_null(pp_mover_find(NULL, PP_OF_HOSTS));
}

/* Without a launcher: what is asked for, else threads; a carrier's name leaves it open. */
static void threads_unless_asked_or_launched(void **state)
{
    (void)state;
    static const char *const names[] = {NULL, "auto", "inproc", "staged", "nccl"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct pp_transport *chosen;
        struct pp_processes alone;
        OK(pp_transport_start(names[i], &chosen, &alone));
        assert_ptr_equal(chosen, &pp_transport_inproc);
        assert_int_equal(alone.count, 1);
        chosen->finish();
    }
}

static void no_term_is_left_out_silently(void **state)
{
    (void)state;
    const struct pp_processes two = {.count = 2, .on_host = 2, .hosts = 1};
    struct pp_terms *terms = calloc(1, sizeof *terms);
    char words[64];
    assert_non_null(terms);
    for (int i = 0; i <= PP_TERMS; i++) pp_terms_add(terms, "number", "count again", "%d", i);
    assert_int_equal(pp_agree(transport, &two, PP_OK, terms), PP_INTERNAL);
    snprintf(words, sizeof words, "%d terms, and %d to agree on", PP_TERMS, PP_TERMS + 1);
    assert_non_null(strstr(pp_message(), words));
    free(terms);
}

static int test_threads(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_in_order),
        cmocka_unit_test(wrong_sizes_are_told),
        cmocka_unit_test(a_failure_stops_all),
        cmocka_unit_test(a_failure_leaves_no_message_on_a_stack),
        cmocka_unit_test(worlds_must_divide),
        cmocka_unit_test(collectives_of_any_size),
        cmocka_unit_test(sums_have_the_bits_of_replica_order),
    };
    const struct CMUnitTest registry[] = {
        cmocka_unit_test(transports_are_those_of_the_list),
        cmocka_unit_test(threads_unless_asked_or_launched),
        cmocka_unit_test(no_term_is_left_out_silently),
    };
    int failed = 0;
    processes = (struct pp_processes){.count = 1, .on_host = 1, .hosts = 1};
    for (int i = 0; pp_transports[i]; i++) {
        if (pp_mover_find(pp_transports[i]->name, PP_OF_HOSTS)->joins_processes) continue;
        transport = pp_transports[i];
        failed += cmocka_run_group_tests_name(transport->name, tests, NULL, NULL);
    }
    return failed + cmocka_run_group_tests(registry, NULL, NULL);
}

/* A failure of one process ends the others (tests/faults/killed.sh), so here nothing fails. */
static int test_processes(const char *name)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_in_order),
        cmocka_unit_test(collectives_of_any_size),
        cmocka_unit_test(sums_have_the_bits_of_replica_order),
    };
    if (pp_transport_start(name, &transport, &processes) != PP_OK || strcmp(transport->name, name) != 0 ||
        processes.count < 2 || !processes.launched) {
        fprintf(stderr, "%s: transport %s in %d processes: %s\n", name, transport ? transport->name : "none",
                processes.count, pp_message());
        return 1;
    }
    const int failed = cmocka_run_group_tests_name(name, tests, NULL, NULL);
    transport->finish();
    return failed;
}

int main(int argc, char **argv) { return argc > 1 ? test_processes(argv[1]) : test_threads(); }
