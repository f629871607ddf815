/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention's two ways on the emulated device: where both can do a shape they agree, whichever a device would take, and
 * so does flash, also where heads share keys and values; and what is not a number is not lost. That they are right is
 * the matter of test_parity. And tensor cores do what predictions say.
 */
#include "attention_buffer.h"

#include "kernels/cuda/attention_tiles.h"

namespace
{

struct shape {
    int rows, seq, heads, dh, causal;
    float p;
    int kv; /* heads of keys and values; 0: as many */
    int window;
};

const shape shapes[] = {
    {2, 9, 4, 3, 0, 0, 0},           {1, 1, 2, 2, 1, 0.5f, 0},         {2, 35, 2, 20, 1, 0.2f, 0},
    {1, 35, 2, 256, 0, 0.2f, 0},     {1, 64, 2, 64, 1, 0, 0},          {1, 65, 1, 65, 1, 0.3f, 0},
    {2, 70, 1, 16, 0, 0.1f, 0},      {1, 127, 1, 33, 1, 0.1f, 0},      {1, 128, 2, 8, 0, 0.25f, 0},
    {1, 100, 2, 48, 1, 0.2f, 0},     {1, 66, 1, 112, 0, 0.1f, 0},      {2, 35, 4, 20, 1, 0.2f, 2},
    {1, 70, 3, 16, 0, 0.1f, 1},      {2, 100, 4, 48, 1, 0.2f, 2},      {1, 66, 6, 112, 0, 0.1f, 2},
    {1, 70, 2, 144, 1, 0.2f, 0},     {1, 100, 2, 192, 0, 0.1f, 1},     {2, 66, 4, 256, 1, 0.2f, 2},
    {2, 9, 4, 3, 1, 0, 0, 1},        {1, 128, 2, 8, 1, 0.25f, 0, 70},  {2, 100, 4, 48, 1, 0.2f, 2, 7},
    {1, 300, 2, 64, 1, 0.2f, 1, 65}, {1, 200, 1, 144, 1, 0.1f, 0, 32},
};

cudaStream_t stream;
void *scratch;

struct way {
    cudaError_t (*forward)(const struct pp_cuda_call *), (*backward)(const struct pp_cuda_call *);
    bool flash;
};
const way short_way = {pp_attention_short, pp_attention_short_grad, false},
          long_way = {pp_attention_long, pp_attention_long_grad, false},
          flash = {pp_cuda_flash, pp_cuda_flash_grad, true};

/* What a way makes of a shape, forward and backward; flash has no p. nan_at: NULL, or an element of qkv that is none.
 * spread: queries, keys and values are so many times as large. */
struct outcome {
    std::vector<float> ctx, p, qkv, dqkv;
    int64_t products[2], fragments[2]; /* of tensor cores, forward and backward */
};

template <typename T>
outcome run(const shape &s, const way &w, const int64_t *nan_at, float spread = 1,
            int64_t scratch_bytes = PP_CUDA_SCRATCH_BYTES)
{
    const int64_t tokens = (int64_t)s.rows * s.seq, d = s.heads * s.dh, width = d + 2 * (s.kv ? s.kv : s.heads) * s.dh;
    buffer<T> ctx(tokens * d, 1), p(tokens * s.heads * s.seq, 2), qkv(tokens * width, 3), dctx(tokens * d, 4);
    buffer<float> bias(width, 5), lse(tokens * s.heads, 6);
    std::vector<T> larger;
    for (float x : qkv.get()) larger.push_back(pp_from_float<T>(x * spread));
    qkv.put(0, larger);
    if (nan_at) qkv.put(*nan_at, {pp_from_float<T>(NAN)});
    struct pp_frame frame = {};
    frame.seed = 0x123456789abcdef0u;
    frame.step = 3;
    frame.first_row = 11;
    frame.training = true;
    struct pp_call call = {};
    call.kernel = w.flash ? PP_KERNEL_FLASH : PP_KERNEL_ATTENTION;
    call.attention = {s.rows, s.seq, s.heads, s.dh, s.causal, s.kv, 0, s.window};
    call.site = s.p > 0 ? 7 : 0;
    call.p = s.p;
    call.precision = sizeof(T) == 2 ? PP_BF16 : PP_FP32;
    struct pp_cuda_call c = {};
    c.call = &call;
    c.frame = &frame;
    c.scratch = scratch;
    c.scratch_bytes = scratch_bytes;
    c.stream = stream;
    if (w.flash)
        c.at.flash = {ctx.p, lse.p, qkv.p, bias.p, NULL, NULL};
    else
        c.at.attention = {ctx.p, p.p, qkv.p, bias.p, NULL};
    pp_emu::products = pp_emu::fragments = 0;
    assert_int_equal(w.forward(&c), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    outcome out = {ctx.get(), p.get(), qkv.get(), {}, {pp_emu::products}, {pp_emu::fragments}};
    call.kernel = w.flash ? PP_KERNEL_FLASH_GRAD : PP_KERNEL_ATTENTION_GRAD;
    if (w.flash)
        c.at.flash_grad = {qkv.p, lse.p, ctx.p, dctx.p, NULL, NULL, NULL};
    else
        c.at.attention_grad = {qkv.p, p.p, dctx.p, NULL};
    assert_int_equal(w.backward(&c), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    out.dqkv = qkv.get();
    out.products[1] = pp_emu::products - out.products[0];
    out.fragments[1] = pp_emu::fragments - out.fragments[0];
    return out;
}

void near(const char *what, const std::vector<float> &a, const std::vector<float> &b, double tolerance)
{
    for (size_t i = 0; i < a.size(); i++)
        if (!(fabs((double)a[i] - b[i]) <= tolerance * (1 + fabs((double)b[i]))))
            fail_msg("%s[%zu] = %.9g in one way, %.9g in the long one", what, i, a[i], b[i]);
}

bool fits(const shape &s, const way &w)
{
    int most = 0;
    assert_int_equal(pp_attention_shared_bytes(&most), cudaSuccess);
    return w.flash || pp_attention_short_bytes(s.seq, s.dh, s.kv ? s.heads / s.kv : 1) <= most;
}

/* Sums differ in their order, and then in what is rounded to T. */
template <typename T> void compare(double tolerance)
{
    for (const shape &s : shapes) {
        const outcome b = run<T>(s, long_way, NULL);
        for (const way &w : {short_way, flash}) {
            if (!fits(s, w)) continue;
            const outcome a = run<T>(s, w, NULL);
            near("qkv", a.qkv, b.qkv, 0);
            if (!w.flash) near("p", a.p, b.p, tolerance);
            near("ctx", a.ctx, b.ctx, tolerance);
            near("dqkv", a.dqkv, b.dqkv, tolerance);
        }
    }
}

void test_ways(void **)
{
    compare<float>(2e-6);
    compare<__nv_bfloat16>(1e-2);
}

/* Short rows in bf16 are made on tensor cores, in tiles of 16x16, where the columns of heads are a multiple of 16. */
void test_short_products(void **)
{
    for (const shape &s : shapes) {
        if (!fits(s, short_way)) continue;
        const outcome out = run<__nv_bfloat16>(s, short_way, NULL);
        const int64_t side = pp_div_up(s.seq, 16), columns = s.dh % 16 ? 0 : s.dh / 16,
                      tiles = s.rows * s.heads * side * side * columns;
        assert_int_equal(out.products[0], 2 * 2 * tiles);
        assert_int_equal(out.products[1], 2 * 4 * tiles);
        for (int backward = 0; backward < 2 && tiles > 0; backward++) {
            const struct pp_call call = {backward ? PP_KERNEL_ATTENTION_GRAD : PP_KERNEL_ATTENTION,
                                         {s.rows, s.seq, s.heads, s.dh, s.causal, s.kv, 0, s.window},
                                         0,
                                         PP_BF16};
            const struct pp_work work = pp_call_work(&call, true);
            assert_true(work.flops[PP_BF16] == 2.0 * 16 * 8 * 16 * (double)out.products[backward]);
        }
    }
}

int64_t nans(const std::vector<float> &v)
{
    int64_t n = 0;
    for (float x : v) n += isnan(x);
    return n;
}

/* One bad query spoils its ctx, and every key and value of its pair backward; one bad value spoils its column. */
template <typename T> void check_nans(int dh)
{
    const shape s = {1, 9, 2, dh, 0, 0.25f, 0};
    const int64_t query = 3 * 6 * dh + 1, value = 5 * 6 * dh + 4 * dh + dh + 2;
    for (const way &w : {short_way, long_way, flash}) {
        const outcome bad_query = run<T>(s, w, &query), bad_value = run<T>(s, w, &value);
        assert_int_equal(nans(bad_query.ctx), s.dh);
        if (!w.flash) assert_int_equal(nans(bad_query.p), s.seq);
        assert_true(nans(bad_query.dqkv) >= 2 * s.seq * s.dh);
        assert_true(nans(bad_value.ctx) > 0);
    }
}

void test_not_a_number(void **)
{
    check_nans<float>(4);
    check_nans<__nv_bfloat16>(16); /* flash: tensor cores */
    check_nans<__nv_bfloat16>(128);
    check_nans<__nv_bfloat16>(144);
}

/* Scores far apart: what was summed up before a much larger one comes does not count any more. Within a window few
 * values count, which may cancel out: it is their size that matters then. */
template <typename T> void check_large_scores(int dh, double tolerance)
{
    for (int window : {0, 3, 70})
        for (float spread : {8.0f, 60.0f}) {
            const shape s = {1, 200, 2, dh, 1, 0.25f, 0, window};
            const outcome a = run<T>(s, flash, NULL, spread), b = run<T>(s, long_way, NULL, spread);
            near("ctx", a.ctx, b.ctx, window ? tolerance * spread / 4 : tolerance);
            assert_int_equal(nans(a.dqkv), 0);
        }
}

void test_large_scores(void **)
{
    check_large_scores<float>(4, 1e-3);
    check_large_scores<__nv_bfloat16>(16, 2e-2);
    check_large_scores<__nv_bfloat16>(96, 2e-2);
    check_large_scores<__nv_bfloat16>(144, 2e-2);
}

/* Where scratch has room for few groups, they are done part by part: the same bits. Of a token of a group of g heads
 * wait dh columns for each, or of keys and values those of all heads in float arithmetic, and once on tensor cores;
 * there keys' and values' if heads are wide; the widest have both; and a mean of each. */
template <typename T> void check_parts(int dh, int kv)
{
    const shape s = {2, 20, 4, dh, 1, 0.25f, kv};
    const bool multiplies = sizeof(T) == 2;
    const int g = kv ? s.heads / kv : 1, groups = s.rows * s.heads / g, number = (int)sizeof(T);
    const bool keys = dh > 256 || g > 1 || (multiplies && dh > 128), queries = dh > 256 || !keys;
    const int roles = queries * g + keys * 2 * (multiplies ? 1 : g);
    const outcome whole = run<T>(s, flash, NULL);
    for (int some : {1, 3, groups - 1}) {
        const int64_t bytes = (int64_t)some * s.seq * (roles * dh * number + 4 * g);
        near("dqkv", run<T>(s, flash, NULL, 1, bytes).dqkv, whole.dqkv, 0);
    }
}

void test_parts(void **)
{
    for (int kv : {0, 2}) {
        check_parts<float>(8, kv);
        check_parts<float>(260, kv);
        check_parts<__nv_bfloat16>(16, kv);
        check_parts<__nv_bfloat16>(208, kv);
    }
}

/* Fragments of two matrices that warps of 16 tokens hold, four to a block, in both kernels of narrow heads' gradients:
 * of queries, and of what heads share. */
int64_t held_once(const shape &s)
{
    const int64_t heads = s.heads + (s.kv ? s.kv : s.heads), warps = 4 * ((s.seq + 63) / 64) * s.rows * heads;
    return s.dh > 128 ? 0 : warps * 2 * pp_mma_width(s.dh) / 16;
}

/* The operations of a prediction are those of the kernels, to the last; its bytes of shared memory, too, but for what a
 * block fetches once. */
void test_work(void **)
{
    const shape of[] = {{1, 1, 2, 16, 1, 0, 0},      {2, 35, 2, 48, 0, 0, 0},       {1, 100, 2, 80, 1, 0, 1},
                        {1, 200, 2, 112, 1, 0, 0},   {1, 257, 1, 128, 1, 0, 0},     {1, 384, 2, 128, 0, 0, 1},
                        {1, 35, 2, 144, 1, 0, 0},    {1, 257, 1, 192, 1, 0, 0},     {1, 384, 2, 256, 0, 0, 1},
                        {1, 500, 2, 64, 1, 0, 0, 1}, {1, 500, 2, 64, 1, 0, 1, 100}, {1, 333, 1, 144, 1, 0, 0, 65}};
    for (const shape &s : of) {
        const outcome out = run<__nv_bfloat16>(s, flash, NULL);
        for (int backward = 0; backward < 2; backward++) {
            const struct pp_call call = {backward ? PP_KERNEL_FLASH_GRAD : PP_KERNEL_FLASH,
                                         {s.rows, s.seq, s.heads, s.dh, s.causal, s.kv, 0, s.window},
                                         0,
                                         PP_BF16};
            const struct pp_work work = pp_call_work(&call, true);
            assert_true(work.flops[PP_BF16] == 2.0 * 16 * 8 * 16 * (double)out.products[backward]);
            const double read = 512.0 * (double)(out.fragments[backward] - backward * held_once(s)),
                         least = backward     ? 0.86
                                 : s.dh > 128 ? 0.88
                                              : 0.83;
            if (s.seq > 128) assert_true(read > least * work.shared_bytes && read <= work.shared_bytes);
        }
    }
}

} // namespace

int main(void)
{
    if (cudaSetDevice(0) || cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) ||
        cudaMalloc(&scratch, PP_CUDA_SCRATCH_BYTES) || pp_cuda_prepare_attention() || pp_cuda_prepare_attention_mma() ||
        pp_cuda_prepare_attention_mma_grad())
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ways),         cmocka_unit_test(test_short_products),
                                       cmocka_unit_test(test_not_a_number), cmocka_unit_test(test_large_scores),
                                       cmocka_unit_test(test_parts),        cmocka_unit_test(test_work)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
