/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of short rows in TF32, against its definition: sums in double of factors that are rounded to the nearest
 * TF32 number. So it must come much nearer than factors that are not rounded, or cut, would let it. Dropout is taken as
 * the kernel has stored it, in the signs of P. That it is right is the matter of test_parity.
 */
#include "attention_buffer.h"

#include "kernels/cuda/attention_tiles.h"

namespace
{

struct shape {
    int rows, seq, heads, dh, causal;
    float p;
    int kv, window, dv; /* 0: as many heads, none, as many columns */
    bool bare;          /* without a bias */
};

/* One token; less than a tile, a tile and one more; all ways to divide scores among warps; rows of more than 64 tokens,
 * whose scores lie beside the matrices; gradients of queries and keys that are made in several parts. */
const shape shapes[] = {
    {2, 1, 2, 16, 1, 0.5f},
    {2, 7, 3, 32, 0, 0.2f},
    {1, 7, 2, 256, 1, 0, 0, 3},
    {3, 16, 2, 16, 1, 0.2f},
    {1, 16, 2, 80, 0, 0, 0, 0, 0, true},
    {2, 17, 2, 16, 0, 0.2f},
    {1, 17, 4, 64, 1, 0.1f, 2, 5},
    {1, 32, 2, 48, 1, 0.1f},
    {1, 35, 2, 256, 0, 0.2f},
    {1, 35, 2, 256, 1, 0.2f, 0, 0, 0, true},
    {2, 35, 4, 80, 1, 0.2f, 2},
    {1, 35, 3, 32, 1, 0, 1, 9},
    {2, 35, 2, 48, 1, 0.2f, 0, 0, 32},
    {1, 35, 2, 16, 0, 0.2f, 0, 0, 80, true},
    {1, 49, 2, 32, 1, 0.1f},
    {1, 64, 2, 64, 1, 0.2f},
    {1, 64, 2, 80, 0, 0, 1},
    {1, 64, 1, 256, 1, 0.2f, 0, 17},
    {1, 65, 2, 32, 1, 0.2f},
    {1, 100, 2, 48, 0, 0.1f, 1, 0, 16, true},
    {1, 128, 2, 16, 1, 0.2f},
    {1, 128, 2, 64, 1, 0.2f, 0, 70},
    {1, 120, 2, 80, 0, 0.1f},
};

cudaStream_t stream;
void *scratch;

/* What a call reads and makes, forward and backward; numbers of qkv before, and with the bias. */
struct outcome {
    std::vector<float> before, bias, qkv, p, ctx, dctx, dqkv;
    int64_t products[2];
};

struct pp_call call_of(const shape &s, int precision)
{
    struct pp_call call = {};
    call.kernel = PP_KERNEL_ATTENTION;
    call.attention = {s.rows, s.seq, s.heads, s.dh, s.causal, s.kv, 0, s.window, s.dv};
    call.site = s.p > 0 ? 7 : 0;
    call.p = s.p;
    call.precision = precision;
    return call;
}

/* shift: operands begin so many numbers behind where they are aligned. nan_at: -1, or a number of qkv that is none. */
outcome run(const shape &s, int precision, int shift = 0, int64_t nan_at = -1)
{
    struct pp_call call = call_of(s, precision);
    const struct pp_attention_dims *n = &call.attention;
    const int64_t tokens = (int64_t)s.rows * s.seq, width = PP_QKV_COLUMNS(n), d = s.heads * PP_VALUE_COLUMNS(n);
    buffer<float> ctx(tokens * d + shift, 1), p(tokens * s.heads * s.seq, 2), qkv(tokens * width + shift, 3),
        dctx(tokens * d + shift, 4), bias(width, 5);
    if (nan_at >= 0) qkv.put(nan_at, {NAN});
    struct pp_frame frame = {};
    frame.seed = 0x123456789abcdef0u;
    frame.training = true;
    struct pp_cuda_call c = {};
    c.call = &call;
    c.frame = &frame;
    c.scratch = scratch;
    c.scratch_bytes = PP_CUDA_SCRATCH_BYTES;
    c.stream = stream;
    c.at.attention = {ctx.p + shift, p.p, qkv.p + shift, s.bare ? NULL : bias.p, NULL};
    outcome out = {qkv.get(), bias.get(), {}, {}, {}, dctx.get(), {}, {}};
    pp_emu::tf32_products = 0;
    assert_int_equal(pp_attention_short(&c), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    out.products[0] = pp_emu::tf32_products;
    out.qkv = qkv.get();
    out.p = p.get();
    out.ctx = ctx.get();
    call.kernel = PP_KERNEL_ATTENTION_GRAD;
    c.at.attention_grad = {qkv.p + shift, p.p, dctx.p + shift, NULL};
    assert_int_equal(pp_attention_short_grad(&c), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    out.products[1] = pp_emu::tf32_products - out.products[0];
    out.dqkv = qkv.get();
    return out;
}

/* ---- the definition ---- */

typedef std::vector<double> numbers;

double factor(double x) { return pp_emu_tf32((float)x); }

/* A head: columns of each token, which lie `width` apart from `at` on. */
struct head {
    const std::vector<float> *of;
    int64_t at;
    int width;
    double get(int token, int column) const { return factor((*of)[(size_t)(at + (int64_t)token * width + column)]); }
};

struct definition {
    const shape &s;
    const outcome &o;
    int dv, kv, width, d;

    definition(const shape &shape_of, const outcome &out) : s(shape_of), o(out)
    {
        dv = s.dv ? s.dv : s.dh;
        kv = s.kv ? s.kv : s.heads;
        width = s.heads * s.dh + kv * (s.dh + dv);
        d = s.heads * dv;
    }
    int64_t query_at(int row, int h) const { return (int64_t)row * s.seq * width + h * s.dh; }
    int64_t key_at(int row, int h) const { return query_at(row, s.heads) + h / (s.heads / kv) * s.dh; }
    int64_t value_at(int row, int h) const { return query_at(row, s.heads + kv) + h / (s.heads / kv) * dv; }
    head query(int row, int h) const { return {&o.qkv, query_at(row, h), width}; }
    head key(int row, int h) const { return {&o.qkv, key_at(row, h), width}; }
    head value(int row, int h) const { return {&o.qkv, value_at(row, h), width}; }
    head dctx(int row, int h) const { return {&o.dctx, (int64_t)row * s.seq * d + h * dv, d}; }

    bool sees(int query, int key) const { return (!s.causal || key <= query) && (!s.window || key > query - s.window); }
    double keep() const { return s.p > 0 ? 1 / (1 - (double)s.p) : 1; }
    double scale() const { return 1 / sqrt((double)s.dh); }
    /* P as it is stored. */
    double p(int row, int h, int i, int j) const
    {
        return o.p[(size_t)((((int64_t)row * s.heads + h) * s.seq + i) * s.seq + j)];
    }
    double kept(int row, int h, int i, int j) const { return fmax(p(row, h, i, j), 0); }

    /* P without dropout, of a query. */
    numbers softmax(int row, int h, int i) const
    {
        numbers e((size_t)s.seq, 0);
        double sum = 0;
        for (int j = 0; j < s.seq; j++) {
            double score = 0;
            for (int c = 0; c < s.dh; c++) score += query(row, h).get(i, c) * key(row, h).get(j, c);
            sum += e[(size_t)j] = sees(i, j) ? exp(score * scale()) : 0;
        }
        for (double &x : e) x /= sum;
        return e;
    }
    /* The gradients of a query's scores. */
    numbers dscores(int row, int h, int i) const
    {
        numbers dp((size_t)s.seq, 0);
        double mean = 0;
        for (int j = 0; j < s.seq; j++) {
            for (int c = 0; c < dv; c++) dp[(size_t)j] += dctx(row, h).get(i, c) * value(row, h).get(j, c);
            mean += kept(row, h, i, j) * keep() * dp[(size_t)j];
        }
        for (int j = 0; j < s.seq; j++) {
            const double x = p(row, h, i, j);
            dp[(size_t)j] = fabs(x) * ((x > 0 ? dp[(size_t)j] * keep() : 0) - mean) * scale();
        }
        return dp;
    }
};

/* Numbers near the expected ones: each within 5e-4 of its size and of all sizes' root mean square, for a factor that
 * lies between two numbers of TF32 may be rounded to the other one; and most much nearer. */
void near(const shape &s, const char *what, const std::vector<float> &a, const numbers &b, double tolerance)
{
    double size = 0, off = 0;
    for (size_t i = 0; i < b.size(); i++) size += b[i] * b[i], off += (a[i] - b[i]) * (a[i] - b[i]);
    size = sqrt(size / (double)b.size()), off = sqrt(off / (double)b.size());
    for (size_t i = 0; i < b.size(); i++)
        if (!(fabs(a[i] - b[i]) <= 5e-4 * (size + fabs(b[i]))))
            fail_msg("%d x %d, %d tokens of %d: %s[%zu] is %.9g, expected %.9g (rms %g)", s.rows, s.heads, s.seq, s.dh,
                     what, i, a[i], b[i], size);
    if (!(off <= tolerance * size))
        fail_msg("%d x %d, %d tokens of %d: %s is off by %g, rms %g", s.rows, s.heads, s.seq, s.dh, what, off, size);
}

void check_forward(const shape &s, const definition &is, const outcome &o)
{
    numbers p, ctx(o.ctx.size(), 0);
    std::vector<float> magnitudes;
    for (size_t i = 0; i < o.qkv.size(); i++)
        assert_true(o.qkv[i] == (s.bare ? o.before[i] : o.before[i] + o.bias[i % (size_t)is.width]));
    for (float x : o.p) magnitudes.push_back(fabsf(x));
    for (int row = 0; row < s.rows; row++)
        for (int h = 0; h < s.heads; h++)
            for (int i = 0; i < s.seq; i++) {
                const numbers of_query = is.softmax(row, h, i);
                p.insert(p.end(), of_query.begin(), of_query.end());
                for (int j = 0; j < s.seq; j++)
                    for (int c = 0; c < is.dv; c++)
                        ctx[(size_t)(((int64_t)row * s.seq + i) * is.d + h * is.dv + c)] +=
                            factor(is.kept(row, h, i, j)) * is.value(row, h).get(j, c) * is.keep();
            }
    near(s, "P", magnitudes, p, 1e-6);
    near(s, "ctx", o.ctx, ctx, 1e-6);
}

void check_backward(const shape &s, const definition &is, const outcome &o)
{
    numbers grads(o.dqkv.size(), 0);
    for (int row = 0; row < s.rows; row++)
        for (int h = 0; h < s.heads; h++)
            for (int i = 0; i < s.seq; i++) {
                const numbers ds = is.dscores(row, h, i);
                for (int j = 0; j < s.seq; j++) {
                    const double weight = factor(is.kept(row, h, i, j)), dscore = factor(ds[(size_t)j]);
                    double *const query = &grads[(size_t)(is.query_at(row, h) + (int64_t)i * is.width)],
                                  *const key = &grads[(size_t)(is.key_at(row, h) + (int64_t)j * is.width)],
                                  *const value = &grads[(size_t)(is.value_at(row, h) + (int64_t)j * is.width)];
                    for (int c = 0; c < s.dh; c++) {
                        query[c] += dscore * is.key(row, h).get(j, c);
                        key[c] += dscore * is.query(row, h).get(i, c);
                    }
                    for (int c = 0; c < is.dv; c++) value[c] += weight * is.dctx(row, h).get(i, c) * is.keep();
                }
            }
    near(s, "dqkv", o.dqkv, grads, 5e-5);
}

void test_definition(void **)
{
    for (const shape &s : shapes) {
        const outcome o = run(s, PP_TF32);
        const definition is(s, o);
        check_forward(s, is, o);
        check_backward(s, is, o);
    }
}

/* All of it is made on tensor cores, as predictions say. */
void test_products(void **)
{
    for (const shape &s : shapes) {
        const outcome o = run(s, PP_TF32);
        for (int backward = 0; backward < 2; backward++) {
            struct pp_call call = call_of(s, PP_TF32);
            call.kernel = backward ? PP_KERNEL_ATTENTION_GRAD : PP_KERNEL_ATTENTION;
            const struct pp_work work = pp_call_work(&call, true);
            assert_true(o.products[backward] > 0);
            assert_true(work.flops[PP_TF32] == 2.0 * 16 * 8 * 8 * (double)o.products[backward]);
        }
    }
}

void same(const outcome &a, const outcome &b)
{
    assert_true(a.p == b.p && a.ctx == b.ctx && a.qkv == b.qkv && a.dqkv == b.dqkv);
}

/* In fp32 nothing is; nor in TF32 where columns are no multiple of 16, or memory is not aligned, or a block has too
 * little of it: then that has the bits of fp32. */
void test_plain_float(void **)
{
    const shape odd = {2, 35, 2, 20, 1, 0.2f}, even = {2, 35, 2, 32, 1, 0.2f},
                odd_values = {1, 35, 2, 16, 1, 0, 0, 0, 20};
    for (const shape &s : {odd, even, odd_values}) {
        const outcome plain = run(s, PP_FP32);
        assert_int_equal(plain.products[0] + plain.products[1], 0);
    }
    same(run(odd, PP_TF32), run(odd, PP_FP32));
    same(run(odd_values, PP_TF32), run(odd_values, PP_FP32));
    const outcome shifted = run(even, PP_TF32, 1);
    assert_int_equal(shifted.products[0] + shifted.products[1], 0);
    same(shifted, run(even, PP_FP32, 1));
}

int64_t nans(const std::vector<float> &v)
{
    int64_t n = 0;
    for (float x : v) n += isnan(x);
    return n;
}

/* One bad query spoils its ctx, and every key and value of its pair backward; one bad value spoils its column. */
void test_not_a_number(void **)
{
    for (int seq : {9, 70}) {
        const shape s = {1, seq, 2, 32, 0, 0.25f};
        const int64_t token = 3 * 6 * s.dh;
        const outcome query = run(s, PP_TF32, 0, token + 1), value = run(s, PP_TF32, 0, token + 5 * s.dh + 2);
        assert_int_equal(nans(query.ctx), s.dh);
        assert_int_equal(nans(query.p), s.seq);
        assert_true(nans(query.dqkv) >= 2 * s.seq * s.dh);
        assert_int_equal(nans(value.ctx), s.seq);
    }
}

} // namespace

int main(void)
{
    if (cudaSetDevice(0) || cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) ||
        cudaMalloc(&scratch, PP_CUDA_SCRATCH_BYTES) || pp_cuda_prepare_attention())
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_definition), cmocka_unit_test(test_products),
                                       cmocka_unit_test(test_plain_float), cmocka_unit_test(test_not_a_number)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
