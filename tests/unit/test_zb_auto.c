/* SPDX-License-Identifier: Apache-2.0
 *
 * The search behind zb-auto: its orders are evaluated anew (zb_case.h), and compared with published bubble rates, lower
 * bounds, the best of all orders of small cases, and handcrafted orders.
 */
#include "schedules/schedule.h"
#include "schedules/zb_walk.h"
#include "tests/unit/zb_case.h"

static uint8_t kinds[3 * MOST_RANKS * MOST_MICROBATCHES];

/* The lower bounds of a limit of K microbatches between F and I, F and W: work of each rank with what comes before, and
 * (uniform ranks) how often the first rank's memory is filled. */
static struct found bound(const struct problem *t, int k)
{
    const int n = t->p.ranks, m = t->p.microbatches;
    const int64_t hop = t->costs.hop;
    struct found low = {0};
    int64_t head = 0, first = 0;
    for (int r = 0; r < n; r++) first += t->forward[r] + t->input[r] + (r ? 2 * hop : 0);
    const int64_t residence = first;
    for (int r = 0; r < n; r++) {
        first -= t->input[r]; /* from the first F of rank r to its first I */
        const int64_t idle = most(0, first - (int64_t)(k < m ? k : m) * t->forward[r]);
        const int64_t work = m * (t->forward[r] + t->input[r] + t->weight[r]) + idle;
        low.makespan = most(low.makespan, head + work);
        low.span = most(low.span, work);
        head += t->forward[r] + hop;
        first -= t->forward[r] + 2 * hop;
    }
    const int64_t filled = (m + k - 1) / k * residence + (m - 1) % k * t->forward[0] + t->weight[0];
    low.makespan = most(low.makespan, filled);
    low.span = most(low.span, filled);
    return low;
}

/* Tables 5 and 9 of the paper: its times, its memory (34 h + 5 a s bytes for each token until the end of I, 32 h from
 * then on), limits of P and 2 P times the former, its goal. The printed rates have four digits. */
static void test_published_rates(void **state)
{
    (void)state;
    static const struct {
        int p, m;
        double f, i, w, c, one, two;
        int64_t h, a;
    } rows[] = {{8, 24, 18.522, 18.086, 9.337, .601, .1585, .0433, 2304, 24},
                {8, 32, 18.513, 18.086, 9.331, .626, .1242, .0039, 2304, 24},
                {8, 64, 18.546, 18.097, 9.321, .762, .0674, .0026, 2304, 24},
                {16, 48, 11.347, 11.248, 8.132, .377, .1397, .0066, 5120, 40},
                {16, 64, 11.307, 11.254, 8.101, .379, .1088, .0054, 5120, 40},
                {16, 128, 11.325, 11.308, 8.109, .378, .0576, .0028, 5120, 40}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        for (int limit = 1; limit <= 2; limit++) {
            const int p = rows[k].p, m = rows[k].m;
            const int64_t held = 34 * rows[k].h + 5 * rows[k].a * 1024, held_weight = 32 * rows[k].h;
            struct problem t;
            uniform(&t, p, m, llround(rows[k].f * 1e3), llround(rows[k].i * 1e3), llround(rows[k].w * 1e3),
                    llround(rows[k].c * 1e3), limit * p * held);
            for (int r = 0; r < p; r++) t.held[r] = held, t.held_weight[r] = held_weight;
            t.p.span = true;
            const struct found found = search(&t, kinds), low = bound(&t, limit * p);
            const double work = (double)(m * (t.forward[0] + t.input[0] + t.weight[0]));
            const double rate = 1 - work / (double)found.span, printed = limit == 1 ? rows[k].one : rows[k].two;
            if (!(rate <= printed + 0.5e-4)) fail_msg("P%d M%d, %d P: %.4f, printed %.4f", p, m, limit, rate, printed);
            assert_true(found.span >= low.span && found.makespan >= low.makespan);
        }
}

/* The order of a registered schedule as kinds; P = 1 .. MOST_RANKS. */
static void by_schedule(const char *name, int ranks, int microbatches, uint8_t *out)
{
    const struct pp_schedule_shape shape = {
        .ranks = ranks, .virtual_stages = 1, .stages = ranks, .microbatches = microbatches, .training = true};
    for (int r = 0; r < ranks; r++) {
        struct pp_order order = {0};
        int number;
        assert_int_equal(pp_schedule_find(name, &number)->order(&shape, r, &order), PP_OK);
        for (int64_t i = 0; i < order.n; i++) *out++ = order.ops[i].kind;
        free(order.ops);
    }
}

static void random_times(struct problem *t, uint64_t *seed)
{
    static const int hops[] = {0, 0, 1, 5, 20};
    const int f = 5 + random_below(seed, 26), i = 5 + random_below(seed, 26), w = 5 + random_below(seed, 26);
    const bool alike = random_below(seed, 2), heavy_end = random_below(seed, 2);
    for (int r = 0; r < t->p.ranks; r++) {
        t->forward[r] = alike ? f : 8 + random_below(seed, 7);
        t->input[r] = alike ? i : 8 + random_below(seed, 7);
        t->weight[r] = alike ? w : random_below(seed, 13);
    }
    if (heavy_end) t->forward[t->p.ranks - 1] *= 2;
    t->costs.hop = hops[random_below(seed, 5)];
}

static void expect_no_worse(const struct problem *t, const char *name, const struct found *found)
{
    static uint8_t others[3 * MOST_RANKS * MOST_MICROBATCHES];
    struct found other;
    by_schedule(name, t->p.ranks, t->p.microbatches, others);
    assert_true(evaluate(t, others, &other));
    if (found->makespan > other.makespan)
        fail_msg("P%d M%d: %lld, %s %lld", t->p.ranks, t->p.microbatches, (long long)found->makespan, name,
                 (long long)other.makespan);
}

/* Unequal ranks, long hops, more memory and less: never below a bound, never above the handcrafted orders that fit. */
static void test_random_cases(void **state)
{
    (void)state;
    static const int ms[] = {1, 2, 3, 5, 8, 16, 24, 40};
    int64_t sum = 0;
    uint64_t hash = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t random = seed;
        struct problem t;
        const int p = 1 + random_below(&random, 8), m = ms[random_below(&random, 8)];
        const int limits[] = {1, 1 + p / 2, p, 2 * p - 1, 2 * p, 1000};
        uniform(&t, p, m, 0, 0, 0, 0, 0);
        random_times(&t, &random);
        for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
            for (int r = 0; r < p; r++) t.cap[r] = limits[k];
            const struct found found = search(&t, kinds), low = bound(&t, limits[k]);
            assert_true(found.makespan >= low.makespan && found.span >= low.span);
            sum += found.makespan;
            for (int i = 0; i < 3 * p * m; i++) hash = (hash ^ kinds[i]) * 1099511628211U;
            if (limits[k] >= p) expect_no_worse(&t, "zb-h1", &found);
            if (limits[k] >= 2 * p - 1) expect_no_worse(&t, "zb-h2", &found);
        }
    }
    if (hash != 0xd8bbdb76b1856722) fail_msg("orders are not what they were: %016llx", (unsigned long long)hash);
    if (sum > 1797765) fail_msg("all makespans together are %lld, were 1797765", (long long)sum);
}

/* Memory in bytes, of any proportion, other limits on each rank; one that just holds a microbatch on some. */
static void test_random_memory(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t random = seed;
        struct problem t;
        uniform(&t, 1 + random_below(&random, 6), 1 + random_below(&random, 12), 0, 0, 0, 0, 0);
        random_times(&t, &random);
        t.p.span = random_below(&random, 2);
        for (int r = 0; r < t.p.ranks; r++) {
            t.held[r] = random_below(&random, 100);
            t.held_weight[r] = random_below(&random, 100);
            t.cap[r] = most(t.held[r], t.held_weight[r]) + random_below(&random, 4) * random_below(&random, 100);
        }
        search(&t, kinds);
        t.cap[t.p.ranks - 1] = most(t.held[t.p.ranks - 1], t.held_weight[t.p.ranks - 1]) - 1;
        assert_int_equal(pp_zb_search(&t.p, kinds), PP_USAGE);
        assert_non_null(strstr(pp_message(), "has no memory for a single microbatch"));
    }
}

/* All orders of one rank under a limit of K microbatches. */
struct orders {
    int n;
    uint8_t kinds[64][9];
};

static void list_orders(struct orders *out, int k, int m, uint8_t *order, const int done[3])
{
    const int at = done[0] + done[1] + done[2];
    const bool may[3] = {done[0] < m && done[0] - done[2] < k, done[1] < done[0], done[2] < done[1]};
    static const uint8_t kind[3] = {PP_F, PP_I, PP_W};
    if (at == 3 * m) memcpy(out->kinds[out->n++], order, 9);
    for (int i = 0; at < 3 * m && i < 3; i++) {
        int next[3] = {done[0], done[1], done[2]};
        if (!may[i]) continue;
        order[at] = kind[i];
        next[i]++;
        list_orders(out, k, m, order, next);
    }
}

/* Of two ranks and three microbatches the search finds the best order there is. */
static void test_all_orders(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (int n = 0; n < 60; n++) {
        struct problem t;
        const int k = 1 + n % 3;
        struct orders all = {0};
        uint8_t order[9], both[18];
        uniform(&t, 2, 3, 0, 0, 0, 0, k);
        random_times(&t, &random);
        list_orders(&all, k, 3, order, (int[3]){0});
        int64_t best = INT64_MAX;
        for (int a = 0; a < all.n; a++)
            for (int b = 0; b < all.n; b++) {
                struct found found;
                memcpy(both, all.kinds[a], 9);
                memcpy(both + 9, all.kinds[b], 9);
                if (evaluate(&t, both, &found) && found.makespan < best) best = found.makespan;
            }
        assert_int_equal(search(&t, kinds).makespan, best);
    }
}

/* Times that together are beyond 64 bits give the order of smaller ones; none at all are fine too. */
static void test_extreme_times(void **state)
{
    (void)state;
    static uint8_t small[3 * 4 * 12];
    struct problem t;
    uniform(&t, 4, 12, 10, 12, 8, 1, 4);
    search(&t, small);
    uniform(&t, 4, 12, 10LL << 55, 12LL << 55, 8LL << 55, 1LL << 55, 4);
    assert_int_equal(pp_zb_search(&t.p, kinds), PP_OK);
    assert_memory_equal(kinds, small, sizeof small);
    uniform(&t, 4, 12, 0, 0, 0, 0, 4);
    search(&t, kinds);
}

/* Memory for less than P microbatches: as good as the best of many random orders that no rank waits in. */
static void test_short_memory(void **state)
{
    (void)state;
    static const struct {
        int ranks, microbatches, k, f, i, w, makespan;
    } cases[] = {{4, 8, 3, 10, 12, 8, 334}, {4, 12, 3, 1, 2, 1, 66}, {4, 8, 3, 1, 1, 1, 33},
                 {4, 8, 2, 1, 1, 1, 41},    {5, 10, 3, 1, 1, 1, 47}, {8, 24, 4, 10, 12, 8, 1312}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        struct problem t;
        uniform(&t, cases[n].ranks, cases[n].microbatches, cases[n].f, cases[n].i, cases[n].w, 0, cases[n].k);
        assert_true(search(&t, kinds).makespan <= cases[n].makespan);
    }
}

/* A walk of the problem with arrays of its own. */
static void begin_walk(const struct problem *t, struct pp_zb_walk *w)
{
    static struct pp_zb_rank ranks[MOST_RANKS];
    static struct pp_zb_choice next[MOST_RANKS];
    static int64_t ends[2][MOST_RANKS * MOST_MICROBATCHES];
    *w = (struct pp_zb_walk){.p = &t->p,
                             .costs = t->costs,
                             .ranks = ranks,
                             .next = next,
                             .forward_end = ends[0],
                             .input_end = ends[1],
                             .kinds = kinds,
                             .limit = INT64_MAX};
}

/* Of the knobs that made no difference each may be turned, and the order is the same. */
static void test_decisive(void **state)
{
    static uint8_t first[sizeof kinds];
    int same = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        uint64_t random = seed;
        struct problem t;
        struct pp_zb_walk w;
        const int p = 1 + random_below(&random, 8), m = 1 + random_below(&random, 40), lead = random_below(&random, 9);
        uniform(&t, p, m, 0, 0, 0, 0, 1 + random_below(&random, 2 * p));
        random_times(&t, &random);
        begin_walk(&t, &w);
        for (int one = 0; one < PP_ZB_WAYS; one++) {
            pp_zb_by_time(&w, one, lead);
            const int decisive = w.decisive;
            memcpy(first, kinds, sizeof first);
            for (int other = one + 1; other < PP_ZB_WAYS; other++) {
                if ((one ^ other) & decisive) continue;
                pp_zb_by_time(&w, other, lead);
                assert_memory_equal(kinds, first, sizeof first);
                same++;
            }
        }
    }
    assert_true(same > 1000);
}

/* An order that is much worse than what is known is soon left, and one that is as good is not. */
static void test_given_up(void **state)
{
    (void)state;
    struct problem t;
    struct pp_zb_walk w;
    struct pp_zb_figure figure;
    uniform(&t, 32, 256, 10, 12, 8, 0, 32);
    begin_walk(&t, &w);
    assert_true(pp_zb_by_hand(&w, 1) && pp_zb_end(&w, &figure));
    w.limit = figure.first;
    assert_true(pp_zb_by_hand(&w, 1) && pp_zb_end(&w, &figure));
    assert_int_equal(figure.first, w.limit);
    w.limit--;
    assert_true(pp_zb_by_hand(&w, 1) && !pp_zb_end(&w, &figure));
    pp_zb_by_time(&w, 0, 1);
    assert_true(!pp_zb_end(&w, &figure) && w.ranks[0].forwards < 256 / 2);
    pp_zb_by_preference(&w, (const uint8_t[]){PP_F, PP_W, PP_I});
    assert_true(!pp_zb_end(&w, &figure) && w.ranks[0].inputs < 256 / 2);
}

static void test_large(void **state)
{
    (void)state;
    struct problem t;
    uniform(&t, 32, 256, 11325, 11308, 8109, 378, 64);
    const struct found found = search(&t, kinds), low = bound(&t, 64);
    assert_true(found.makespan >= low.makespan && (double)found.makespan < 1.01 * (double)low.makespan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_rates), cmocka_unit_test(test_random_cases),
        cmocka_unit_test(test_random_memory),   cmocka_unit_test(test_all_orders),
        cmocka_unit_test(test_extreme_times),   cmocka_unit_test(test_short_memory),
        cmocka_unit_test(test_large),           cmocka_unit_test(test_decisive),
        cmocka_unit_test(test_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
