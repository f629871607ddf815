/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a worker whose rank shares tensors (--tensor) and tokens (--sequence-parallel): by closed formulas of the
 * model's sizes, and what these have to do with those of Korthikanti et al. 2022 (arXiv 2205.05198, table 2).
 */
#include "tests/unit/cost_case.h"

/* Multiples of all that buffers and parts are rounded up to. */
enum { TOKENS = 256, D = 512, FF = 4 * D, HEADS = 16, ROWS = 2 };

struct memory_case {
    int t; /* workers of a rank */
    bool parts, flash;
    int e; /* bytes of an element */
    const char *more;
};

static struct pp_job *job_of(const struct memory_case *c, int stages, int layers)
{
    char line[400];
    snprintf(
        line, sizeof line,
        "--device cuda --schedule gpipe --chunks 1 --stages %d --layers %d --rows %d --tokens %d --d-model %d --d-ff "
        "%d "
        "--heads %d --vocab 4096 --norm pre --activation gelu --dropout 0.1 --tensor %d --precision %s --attention %s "
        "%s %s",
        stages, layers, ROWS, TOKENS, D, FF, HEADS, c->t, c->e == 2 ? "bf16" : "fp32", c->flash ? "flash" : "math",
        c->parts ? "--sequence-parallel" : "", c->more ? c->more : "");
    return create_job(line);
}

static const struct memory_case cases[] = {
    {.t = 1, .e = 2},
    {.t = 1, .parts = true, .e = 2},
    {.t = 2, .e = 2},
    {.t = 2, .parts = true, .e = 2},
    {.t = 8, .e = 2},
    {.t = 8, .parts = true, .e = 2},
    {.t = 8, .flash = true, .e = 2},
    {.t = 8, .parts = true, .flash = true, .e = 2},
    {.t = 4, .parts = true, .e = 4},
    {.t = 4, .parts = true, .flash = true, .e = 4},
};

/* Of one token and layer: x, y1, xhat1, xhat2 of the stream; q, k, v, context, and what GELU reads and writes, of the
 * worker's heads and columns; 1 / sigma of two norms; probabilities, or one number for each head. */
static double layer_bytes(const struct memory_case *c)
{
    const double t = c->t, p = c->parts ? t : 1,
                 attention = c->flash ? 4.0 * HEADS / t : (double)c->e * HEADS * TOKENS / t;
    return c->e * (4 * D / p + (4 * D + 2 * FF) / t) + 8 / p + attention;
}

/* Theirs, in 16 bits: s b h (10 + 24 / t + 5 a s / (h t)), or s b h / t (34 + 5 a s / h); without what selective
 * recomputation makes again, 5 a s / h is left out. */
static double their_bytes(const struct memory_case *c)
{
    const double t = c->t, scores = c->flash ? 0 : 5.0 * HEADS * TOKENS / D;
    return c->parts ? D / t * (34 + scores) : D * (10 + 24 / t + scores / t);
}

static double slot_bytes(const struct memory_case *c, int layers)
{
    struct pp_job *job = job_of(c, 1, layers);
    const struct pp_program_spec spec = pp_phase_spec(&job->phase[PP_TRAIN], ROWS);
    const double bytes = (double)pp_model_act_bytes(job->model, 0, &spec);
    pp_job_free(job);
    return bytes;
}

static void test_a_layer(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct memory_case *c = &cases[i];
        const double tokens = (double)ROWS * TOKENS, of_layer = (slot_bytes(c, 3) - slot_bytes(c, 2)) / tokens;
        expect_near(of_layer, layer_bytes(c), 1e-6, "bytes of a layer and token");
        if (c->e != 2) continue;
        /* They keep the masks of two dropouts of residuals, and of attention its mask and what comes out of that: all
         * drawn again here. Here are 1 / sigma of the norms, and one number for each head with flash. */
        const double t = c->t, p = c->parts ? t : 1;
        const double scores = c->flash ? -4.0 * HEADS / t : 3.0 * HEADS * TOKENS / t;
        expect_near(their_bytes(c) - of_layer, 2 * D / p - 8 / p + scores, 1e-6, "theirs - ours");
    }
}

/* Bytes of a kind (enum pp_memory_kind) on the second of three ranks of a layer each. */
static int64_t middle(const struct memory_case *c, enum pp_memory_kind kind)
{
    struct pp_job *job = job_of(c, 3, 3);
    const int64_t bytes = job->layout->bytes[1][kind];
    pp_job_free(job);
    return bytes;
}

/* Inputs of layers, and what is sent and received: of all tokens, or of a part. */
static void test_checkpoints_and_messages(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct memory_case c = cases[i];
        const int64_t hidden = (int64_t)ROWS * TOKENS * D * c.e / (c.parts ? c.t : 1);
        c.more = "--checkpoint layers --recv-buffers 1";
        assert_int_equal(middle(&c, PP_BYTES_CKPT), hidden);
        assert_int_equal(middle(&c, PP_BYTES_TRANSFER), 4 * hidden); /* in and out, forward and back */
        c.more = "--checkpoint always --recv-buffers 1";
        assert_int_equal(middle(&c, PP_BYTES_CKPT), hidden);
    }
}

/* The backward of a layer: the stream, the norm's gradient, that of linear2's output; the context's and the
 * activation's of a worker's heads and columns; attention's; with parts of the tokens room for all of them, twice. */
static void test_scratch(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct memory_case *c = &cases[i];
        const int64_t tokens = (int64_t)ROWS * TOKENS, p = c->parts ? c->t : 1;
        const bool parts = c->parts && c->t > 1;
        const int64_t stream = (c->t > 1 ? 3 : 2) * D / p, full = parts ? 2 * D : 0;
        const int64_t attention = 8LL * TOKENS * ((c->flash ? 64 : TOKENS) + D / HEADS);
        assert_int_equal(middle(c, PP_BYTES_WORK), tokens * c->e * (stream + full + (D + FF) / c->t) + attention);
    }
}

/* --checkpoint activation: what GELU makes is scratch of the backward, not kept. */
static void test_activation_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct memory_case c = cases[i];
        const int64_t inner = (int64_t)ROWS * TOKENS * FF * c.e / c.t;
        const int64_t kept = middle(&c, PP_BYTES_ACT), scratch = middle(&c, PP_BYTES_WORK);
        c.more = "--checkpoint activation";
        assert_int_equal(middle(&c, PP_BYTES_ACT), kept - inner);
        assert_int_equal(middle(&c, PP_BYTES_WORK), scratch + inner);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_layer), cmocka_unit_test(test_checkpoints_and_messages),
                                       cmocka_unit_test(test_scratch), cmocka_unit_test(test_activation_again)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
