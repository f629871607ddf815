/* SPDX-License-Identifier: Apache-2.0
 *
 * What sums over the workers of a rank take: by a data sheet, over a network, from a profile; by formulas of the layer,
 * not of its program.
 */
#include "tests/unit/cost_case.h"

/* Of a machine that computes in no time: bytes/ns and ns of its sums, and of its network. */
static const double sum_rate = 50, net_rate = 10, sum_latency = 3000, net_latency = 5000;

static struct pp_machine sums_only(int host_devices)
{
    struct pp_machine m;
    assert_int_equal(pp_machine_find("h100", &m), PP_OK);
    for (int i = 0; i < PP_PRECISIONS; i++) m.flops_per_ns[i] = 1e15;
    memset(m.tiles, 0, sizeof m.tiles);
    m.bytes_per_ns = m.loaded_bytes_per_ns = 1e15;
    m.shared_bytes_per_ns = m.call_overhead_ns = 0;
    m.host_devices = host_devices;
    m.reduce_latency_ns = sum_latency, m.reduce_bytes_per_ns = sum_rate;
    m.network_latency_ns = net_latency, m.network_bytes_per_ns = net_rate;
    return m;
}

/* Rounds that a task of the class takes of its hidden vectors, as docs/TIMES.md has them: two for each all-reduce. */
static int whole_rounds(const struct pp_job *job, const struct pp_class *class)
{
    const struct pp_stage *stage = &job->model->stages[class->stage];
    const bool pre = job->model->shape.norm == PP_NORM_FIRST, again = job->train->checkpoint == PP_CHECKPOINT_LAYERS;
    const int forward = 2 * stage->layers + stage->embed, backward = 2 * stage->layers + stage->decode;
    switch (class->kind) {
    case PP_F:
        return 2 * forward;
    case PP_R:
        return 2 * (forward - (pre && !stage->decode));
    case PP_I:
        return 2 * backward;
    case PP_B:
        return 2 * (backward + (again ? (pre ? stage->layers + stage->decode : 2 * stage->layers) : 0));
    default:
        return 0;
    }
}

/* The same where workers have parts of the tokens: one for each time that these are scattered, or gathered. */
static int part_rounds(const struct pp_job *job, const struct pp_class *class)
{
    const struct pp_stage *stage = &job->model->stages[class->stage];
    const bool pre = job->model->shape.norm == PP_NORM_FIRST, again = job->train->checkpoint == PP_CHECKPOINT_LAYERS;
    const int layers = stage->layers, forward = 4 * layers + stage->embed + stage->decode;
    switch (class->kind) {
    case PP_F:
        return forward;
    case PP_R:
        return forward - (pre && !stage->decode);
    case PP_I:
        return 4 * layers + stage->decode;
    case PP_W:
        return 4 * layers + stage->decode + stage->embed;
    case PP_B: /* what I has gathered W need not gather again, but inputs */
        return 6 * layers + 2 * stage->decode + stage->embed +
               (again ? (pre ? 3 * layers + stage->decode : 4 * layers) + stage->decode : 0);
    default:
        return 0;
    }
}

/* Does a task of the class make the loss? */
static bool makes_loss(const struct pp_job *job, const struct pp_class *class)
{
    if (!pp_kinds[class->kind].computes || !job->model->stages[class->stage].decode) return false;
    return class->kind == PP_F || class->kind == PP_R ||
           (class->kind == PP_B && job->train->checkpoint == PP_CHECKPOINT_LAYERS);
}

struct figures {
    double latency_ns, rate;
};

/* All-reduces of gradients of norms: of a layer's four tensors, or two of RMS norms, and of the last norm's. */
static double norms_ns(const struct pp_job *job, const struct pp_class *class, struct figures of, double around)
{
    const struct pp_shape *shape = &job->model->shape;
    const struct pp_stage *stage = &job->model->stages[class->stage];
    const double vector = 4.0 * shape->d_model, tensors = shape->normalization == PP_RMSNORM ? 1 : 2;
    const bool last = stage->decode && shape->norm == PP_NORM_FIRST;
    if (!job->config->model.sequence || class->kind != (job->config->clip > 0 ? PP_NORM : PP_STEP)) return 0;
    return stage->layers * (of.latency_ns + around * 2 * tensors * vector) +
           last * (of.latency_ns + around * tensors * vector);
}

static double sums_ns(const struct pp_job *job, const struct pp_class *class, struct figures of)
{
    const struct pp_shape *shape = &job->model->shape;
    const int t = job->train->members, seq = job->config->tokens;
    const bool parts = job->config->model.sequence;
    const int rounds = parts ? part_rounds(job, class) : whole_rounds(job, class);
    const double tokens = (double)class->rows * seq, around = 2.0 * (t - 1) / t / of.rate;
    const double summed = parts ? (double)class->rows * ((seq + t - 1) / t * t) : tokens; /* each part is rounded up */
    const double hidden = summed * shape->d_model * (shape->precision == PP_BF16 ? 2 : 4);
    if (t == 1) return 0;
    double ns = rounds / 2.0 * (of.latency_ns + around * hidden) + norms_ns(job, class, of, around);
    if (makes_loss(job, class))
        ns += of.latency_ns + around * t * tokens * 3 * 4; /* three numbers of each row of logits, for each worker */
    return ns;
}

static void check_sums(const struct pp_job *job, const struct pp_cost *cost, struct figures of, const char *what)
{
    for (int c = 0; c < cost->nclasses; c++) {
        const struct pp_class *class = &job->train->classes[c];
        if (!pp_kinds[class->kind].computes) continue;
        const double expected = sums_ns(job, class, of);
        expect_near((double)cost->classes[c].sums_ns, expected, 20 + expected * 1e-5, what); /* each is rounded */
    }
}

#define PARTS "--sequence-parallel "
#define SHAPE "--device cuda --stages 3 --layers 8 --split 3,2,3 --heads 8 --d-model 64 --d-ff 128 --vocab 1000 "

static void test_data_sheet(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        int devices; /* of a host */
        struct figures figures;
    } cases[] = {{SHAPE "--tensor 1", 8, {0, 1}},
                 {SHAPE "--tensor 2", 8, {3000, 50}},
                 {SHAPE "--tensor 8 --precision bf16", 0, {3000, 50}},
                 {SHAPE "--tensor 4 --norm pre --replicas 2", 8, {3000, 50}},
                 {SHAPE "--tensor 8", 8, {3000, 50}},
                 {SHAPE "--tensor 2 --checkpoint always", 8, {3000, 50}},
                 {SHAPE "--tensor 2 --checkpoint layers", 8, {3000, 50}},
                 {SHAPE "--tensor 2 --checkpoint always --norm pre", 8, {3000, 50}},
                 {SHAPE "--tensor 2 --checkpoint layers --norm pre", 8, {3000, 50}},
                 {SHAPE "--tensor 2 --schedule zb-h1", 8, {3000, 50}},
                 {SHAPE PARTS "--tensor 2", 8, {3000, 50}},
                 {SHAPE PARTS "--tensor 1", 8, {0, 1}},
                 {SHAPE PARTS "--tensor 8 --precision bf16 --tokens 35", 0, {3000, 50}},
                 {SHAPE PARTS "--tensor 4 --norm pre --replicas 2 --clip 0", 8, {3000, 50}},
                 {SHAPE PARTS "--tensor 2 --norm pre --normalization rmsnorm", 8, {3000, 50}},
                 {SHAPE PARTS "--tensor 2 --checkpoint always", 8, {3000, 50}},
                 {SHAPE PARTS "--tensor 2 --checkpoint layers", 8, {3000, 50}},
                 {SHAPE PARTS "--tensor 2 --checkpoint always --norm pre", 8, {3000, 50}},
                 {SHAPE PARTS "--tensor 2 --checkpoint layers --norm pre", 8, {3000, 50}},
                 {SHAPE PARTS "--tensor 2 --schedule zb-h1", 8, {3000, 50}},
                 {SHAPE PARTS "--tensor 8", 4, {13000, 40}},
                 {SHAPE "--tensor 8", 4, {13000, 40}},           /* two hosts, four ways out of each */
                 {SHAPE "--tensor 8", 2, {33000, 20}},           /* four hosts */
                 {SHAPE "--tensor 2", 1, {13000, 10}},           /* each its own */
                 {SHAPE "--tensor 4 --gpus 6", 1, {13000, 10}}}; /* two on a GPU, which have one way out */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pp_job *job = create_job(cases[i].options);
        const struct pp_machine m = sums_only(cases[i].devices);
        struct pp_cost *cost;
        if (pp_cost_from_machine(job, &m, &cost) != PP_OK) fail_msg("%s", pp_message());
        check_sums(job, cost, cases[i].figures, cases[i].options);
        for (int c = 0; c < cost->nclasses; c++)
            if (pp_kinds[job->train->classes[c].kind].computes) {
                assert_in_range(cost->classes[c].ns - cost->classes[c].sums_ns, 0, 1);
                assert_in_range(cost->classes[c].loaded_ns - cost->classes[c].sums_ns, 0, 1);
            }
        assert_int_equal(cost->workers, 3 * job->train->members * job->train->replicas);
        pp_cost_free(cost);
        pp_job_free(job);
    }
}

/* Three ranks of three workers on hosts of four devices: 0 1 2, 3 | 4 5, 6 7 | 8. The last two are on two hosts each,
 * on one of them with one device. */
static void test_some_ranks_cross(void **state)
{
    (void)state;
    struct pp_job *job = create_job("--device cuda --stages 3 --layers 3 --heads 3 --d-model 48 --d-ff 96 --tensor 3");
    const struct pp_machine m = sums_only(4);
    struct pp_cost *cost;
    if (pp_cost_from_machine(job, &m, &cost) != PP_OK) fail_msg("%s", pp_message());
    for (int c = 0; c < cost->nclasses; c++) {
        const struct pp_class *class = &job->train->classes[c];
        static const struct figures inside = {3000, 50}, across = {13000, 10};
        if (!pp_kinds[class->kind].computes) continue;
        const double expected = sums_ns(job, class, class->stage == 0 ? inside : across);
        expect_near((double)cost->classes[c].sums_ns, expected, 1 + expected * 1e-5, "a rank on two hosts");
    }
    pp_cost_free(cost);
    pp_job_free(job);
}

/* Replicas of five workers on hosts of eight devices: 0 .. 4 on one, 5 6 7 | 8 9 on two, 10 .. 14 on one, 15 | 16 .. 19
 * on two: the last one's sums are the slowest. Of gradients, the first worker's ring is 0 5 | 10 15, and the second's,
 * the slowest, 1 6 | 11 | 16. */
static void test_the_slowest_replica_counts(void **state)
{
    (void)state;
    struct pp_job *job =
        create_job("--device cuda --stages 1 --layers 3 --heads 5 --d-model 80 --d-ff 160 --vocab 1000 "
                   "--tensor 5 --replicas 4");
    const struct pp_machine m = sums_only(8);
    struct pp_cost *cost;
    if (pp_cost_from_machine(job, &m, &cost) != PP_OK) fail_msg("%s", pp_message());
    check_sums(job, cost, (struct figures){13000, 10}, "the last replica");
    for (int c = 0; c < cost->nclasses; c++)
        if (job->train->classes[c].kind == PP_REDUCE_GRAD)
            expect_near((double)cost->classes[c].ns, 23000 + 1.5 * (double)cost->classes[c].bytes / 10, 1, "gradients");
    pp_cost_free(cost);
    pp_job_free(job);
}

/* All tasks take 1 ms alone, 2 ms loaded, as measured: without sums. */
static void add_profile(struct pp_db *db, const struct pp_job *job, bool sums)
{
    const struct pp_run run = {.tool = "ppprof", .device = "cpu", .processes = 1, .cores = 4};
    const struct pp_run_result result = {.status = "ok"};
    int64_t id;
    assert_int_equal(pp_db_run_begin(db, &run, &config, NULL, &id), PP_OK);
    for (int c = 0; c < job->train->nclasses; c++)
        for (int load = 1; load <= 4 && pp_kinds[job->train->classes[c].kind].computes; load += 3) {
            const int64_t ns = load == 1 ? 1000000 : 2000000;
            const struct pp_sample sample = {.name = job->phase[PP_TRAIN].programs[c].signature,
                                             .context = "",
                                             .load = load,
                                             .count = 9,
                                             .median_ns = ns,
                                             .mean_ns = ns};
            assert_int_equal(pp_db_add_sample(db, id, PP_SAMPLE_TASK, &sample), PP_OK);
        }
    static const char *const p2p[] = {"latency_ns", "send_overhead_ns", "recv_overhead_ns", "ns_per_byte"};
    for (int i = 0; i < 4; i++) assert_int_equal(pp_db_add_link(db, id, "inproc p2p", p2p[i], 1), PP_OK);
    if (sums) assert_int_equal(pp_db_add_link(db, id, "inproc allreduce", "latency_ns", 700), PP_OK);
    if (sums) assert_int_equal(pp_db_add_link(db, id, "inproc allreduce", "ns_per_byte", 0.5), PP_OK);
    assert_int_equal(pp_db_run_end(db, id, &result), PP_OK);
}

/* Sums come to what was measured without them: as quick as measured sums, else as the machine's. */
static void test_profile(void **state)
{
    (void)state;
    static const char *const options[] = {"", "--sequence-parallel"};
    for (int i = 0; i < 4; i++) {
        const bool sums = i % 2;
        char line[128];
        struct pp_db *db;
        struct pp_cost_origin origin;
        struct pp_machine m;
        assert_int_equal(pp_machine_find("cpu", &m), PP_OK);
        const struct figures machine = {m.reduce_latency_ns, m.reduce_bytes_per_ns}, measured = {700, 2};
        unlink("tensor.db");
        assert_int_equal(pp_db_open("tensor.db", PP_DB_WRITE, &db), PP_OK);
        snprintf(line, sizeof line, "--stages 2 --layers 4 --tensor 2 --heads 4 --d-model 32 --d-ff 64 --rows 8 %s",
                 options[i / 2]);
        struct pp_job *job = create_job(line);
        add_profile(db, job, sums);
        struct pp_cost *cost = cost_of(job, db, &origin);
        assert_non_null(cost);
        assert_int_equal(origin.from[PP_COST_PROFILE], origin.classes);
        assert_int_equal(origin.link_computed, !sums);
        check_sums(job, cost, sums ? measured : machine, sums ? "measured sums" : "the machine's");
        for (int c = 0; c < cost->nclasses; c++) {
            if (!pp_kinds[job->train->classes[c].kind].computes) continue;
            assert_int_equal(cost->classes[c].ns - cost->classes[c].sums_ns, 1000000);
            assert_int_equal(cost->classes[c].loaded_ns - cost->classes[c].sums_ns, 2000000);
        }
        assert_int_equal(cost->workers, 4);
        pp_cost_free(cost);
        pp_job_free(job);
        assert_int_equal(pp_db_close(db), PP_OK);
    }
}

/* A call at which workers meet tells its bytes; no other call has any. */
static void test_bytes(void **state)
{
    (void)state;
    static const char *const options[] = {"--tensor 1", "--tensor 1 --sequence-parallel", "--tensor 2",
                                          "--tensor 2 --sequence-parallel"};
    for (int o = 0; o < 4; o++) {
        char line[128];
        snprintf(line, sizeof line, "--stages 1 --precision bf16 --device cuda %s", options[o]);
        struct pp_job *job = create_job(line);
        int64_t most = 0;
        for (int c = 0; c < job->train->nclasses; c++)
            for (int i = 0; i < job->phase[PP_TRAIN].programs[c].ncalls; i++) {
                const int64_t bytes = pp_model_ops.call_join(&job->phase[PP_TRAIN].programs[c].calls[i]).bytes;
                if (bytes > most) most = bytes;
            }
        const int tokens = o == 3 ? (job->config->tokens + 1) / 2 * 2 : job->config->tokens;
        const int64_t hidden = (int64_t)job->train->rows[0] * tokens * job->model->shape.d_model * 2;
        assert_int_equal(most, job->train->members == 1 ? 0 : hidden);
        pp_job_free(job);
    }
}

/* What goes from stage to stage is a worker's part of the tokens, rounded up; gradients for replicas are as ever. */
static void test_messages(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        int tokens; /* of 35 */
    } cases[] = {{"", 35}, {PARTS, 9}, {PARTS "--checkpoint layers", 9}};
    int64_t gradients[3];
    for (int i = 0; i < 3; i++) {
        char line[256];
        snprintf(line, sizeof line, SHAPE "--tensor 4 --precision bf16 --replicas 2 --tokens 35 %s", cases[i].options);
        struct pp_job *job = create_job(line);
        struct pp_machine m = sums_only(8);
        struct pp_cost *cost;
        m.link_overhead_ns = 0, m.link_latency_ns = 1000, m.link_bytes_per_ns = 4;
        if (pp_cost_from_machine(job, &m, &cost) != PP_OK) fail_msg("%s", pp_message());
        for (int c = 0; c < cost->nclasses; c++) {
            const struct pp_class *class = &job->train->classes[c];
            if (pp_is_transfer(class->kind))
                assert_int_equal(cost->classes[c].bytes, class->rows * cases[i].tokens * 64 * 2);
            if (class->kind == PP_REDUCE_GRAD && class->stage == 1) gradients[i] = cost->classes[c].bytes;
        }
        assert_int_equal(gradients[i], gradients[0]);
        pp_cost_free(cost);
        pp_job_free(job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_data_sheet),
                                       cmocka_unit_test(test_some_ranks_cross),
                                       cmocka_unit_test(test_the_slowest_replica_counts),
                                       cmocka_unit_test(test_profile),
                                       cmocka_unit_test(test_bytes),
                                       cmocka_unit_test(test_messages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
