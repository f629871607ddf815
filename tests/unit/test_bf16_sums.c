/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients that are rounded to be summed: where they lie, which share is whose, and what the sums take.
 */
#include "core/job/process.h"
#include "exec/shares.h"
#include "tests/unit/cost_case.h"

#define ROUNDED "--preset lab --layers 4 --replicas 4 --stages 2 --optimizer adamw --grad-reduce-in-bf16 "
#define EXACT "--preset lab --layers 4 --replicas 4 --stages 2 --optimizer adamw "

static const char *const ways[] = {"--zero 0",
                                   "--zero 1",
                                   "--zero 1 --overlap-grad-reduce --bucket-size 1B",
                                   "--zero 3",
                                   "--zero 1 --shard-degree 2",
                                   "--zero 3 --shard-degree 2"};
enum { WAYS = sizeof ways / sizeof ways[0] };

static struct pp_job *job_of(const char *options, const char *way)
{
    char text[256];
    snprintf(text, sizeof text, "%s%s", options, way);
    return create_job(text);
}

/* Half of the float32 numbers of the largest sum of a kind, 0 where there is none. */
static int64_t half_of_largest(const struct pp_job *job, int kind, int rank)
{
    int64_t most = 0;
    for (int c = 0; c < job->train->nclasses; c++) {
        const struct pp_class *cls = &job->train->classes[c];
        if (cls->kind != kind || job->train->stage_rank[cls->stage] != rank) continue;
        const int64_t bytes = pp_part_gradients(job->model, cls).bytes / (kind == PP_REDUCE_SHARE ? 2 : 1);
        if (bytes / 2 > most) most = bytes / 2;
    }
    return most;
}

static int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

/* Gradients take so much more, and nothing else does. */
static void they_have_a_place(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        struct pp_job *exact = job_of(EXACT, ways[way]);
        int64_t before[2][PP_BYTES_KINDS];
        for (int r = 0; r < 2; r++) memcpy(before[r], exact->layout->bytes[r], sizeof before[r]);
        for (int r = 0; r < 2; r++) assert_int_equal(exact->layout->sent_offset[r], -1);
        pp_job_free(exact);
        struct pp_job *job = job_of(ROUNDED, ways[way]);
        for (int r = 0; r < 2; r++) {
            const int64_t all = half_of_largest(job, PP_REDUCE_GRAD, r),
                          share = half_of_largest(job, PP_REDUCE_SHARE, r);
            assert_true(all > 0 && (share > 0) == (way >= 4));
            before[r][PP_BYTES_GRAD] += aligned(all) + aligned(share);
            assert_memory_equal(before[r], job->layout->bytes[r], sizeof before[r]);
            assert_true(job->layout->sent_offset[r] > 0);
            assert_int_equal(job->layout->sent_share_offset[r] > 0, share > 0);
        }
        pp_job_free(job);
    }
}

/* Tensor by tensor the same numbers as those in float32, one behind the other, within the place. */
static void check_lists(const struct pp_job *job, const struct pp_class *cls, int members)
{
    struct pp_shares *floats, *sent;
    int64_t end = 0;
    assert_int_equal(pp_shares_create(job, cls, PP_DENSE, pp_worker_at(job->train, 1, 0, 0), &floats), PP_OK);
    assert_int_equal(pp_shares_create_sent(floats, members, &sent), PP_OK);
    assert_int_equal(sent->n, floats->n);
    assert_int_equal(sent->use, floats->use);
    assert_int_equal(2 * sent->bytes, floats->bytes);
    for (int t = 0; t < sent->n; t++) {
        assert_int_equal(sent->tensors[t].offset, end);
        assert_int_equal(2 * sent->tensors[t].part_bytes, floats->tensors[t].part_bytes);
        end += members * sent->tensors[t].part_bytes;
    }
    assert_true(end > 0 && end <= pp_sent_bytes(job->model, cls, PP_DENSE));
    free(floats);
    free(sent);
}

static void shares_are_the_same_numbers(void **state)
{
    (void)state;
    for (int way = 1; way < WAYS; way++) {
        struct pp_job *job = job_of(ROUNDED, ways[way]);
        const struct pp_plan *plan = job->train;
        for (int c = 0; c < plan->nclasses; c++) {
            const int kind = plan->classes[c].kind;
            if (kind == PP_REDUCE_GRAD) check_lists(job, &plan->classes[c], plan->shard_group);
            if (kind == PP_REDUCE_SHARE && !plan->shards) check_lists(job, &plan->classes[c], 4 / plan->shard_group);
        }
        pp_job_free(job);
    }
}

/* A sum takes what half of its bytes take, and passes over memory: of 6 bytes for each number before, and of as many
 * for what a worker keeps behind it; by tensors where there are shares in several places. */
static void half_of_the_bytes_and_passes_over_memory(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        struct pp_job *job = job_of(ROUNDED, ways[way]);
        const struct pp_plan *plan = job->train;
        struct pp_machine m;
        struct pp_cost *cost;
        assert_int_equal(pp_machine_find("h100", &m), PP_OK);
        m.reduce_latency_ns = 3000, m.reduce_bytes_per_ns = 200, m.bytes_per_ns = 3, m.call_overhead_ns = 50;
        assert_int_equal(pp_cost_from_machine(job, &m, &cost), PP_OK);
        for (int c = 0; c < plan->nclasses; c++) {
            const struct pp_class *cls = &plan->classes[c];
            const bool share = cls->kind == PP_REDUCE_SHARE, scatters = plan->zero && !share;
            if (!share && cls->kind != PP_REDUCE_GRAD) continue;
            const double bytes = (double)pp_part_gradients(job->model, cls).bytes / (share ? 4 : 2);
            const double numbers = bytes / 2;
            const int n = share ? 4 / plan->shard_group : plan->shard_group, rounds = scatters ? 1 : 2;
            const int tensors = pp_part_tensors(&job->model->stages[cls->stage], cls).n;
            const int passes = scatters || (share && !plan->shards) ? 2 * tensors : 2;
            const double kept = scatters ? numbers / n : numbers;
            const double sum = rounds * (1500 + bytes * (n - 1) / n / 200);
            assert_int_equal(cost->classes[c].bytes, (int64_t)bytes);
            expect_near((double)cost->classes[c].ns, sum + passes * 50 + (numbers + kept) * 6 / 3, 2, ways[way]);
        }
        pp_cost_free(cost);
        pp_job_free(job);
    }
}

/* Whoever adds in another order has another key. */
static void the_key_tells(void **state)
{
    (void)state;
    struct pp_job *job = job_of(ROUNDED, ways[0]);
    assert_non_null(strstr(job->accumulation_key, "D4 M"));
    assert_non_null(strstr(job->accumulation_key, " bf16 sums "));
    pp_job_free(job);
    job = job_of(ROUNDED "--replicas 1 ", ways[0]);
    assert_null(strstr(job->accumulation_key, "bf16"));
    pp_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_have_a_place),
        cmocka_unit_test(shares_are_the_same_numbers),
        cmocka_unit_test(half_of_the_bytes_and_passes_over_memory),
        cmocka_unit_test(the_key_tells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
