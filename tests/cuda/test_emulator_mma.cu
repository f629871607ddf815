/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor cores and asynchronous copies of the emulated device. Matrices are dealt out to lanes by the tables of the PTX
 * ISA ("Matrix Fragments for mma.m16n8k16 with floating point type", "... mma.m16n8k8", "ldmatrix"), written down here
 * once more, and multiplied by the loops of a schoolbook; and so are tiles, by the functions that attention uses.
 */
#include "test_emulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

extern "C" {
#include <cmocka.h>
}

#include "kernels/cuda/attention_mma.cuh"

namespace
{

enum { M = 16, N = 8, K = 16 };

cudaStream_t stream;

/* Memory of the device, for a test. */
template <typename T> T *memory(int n)
{
    void *p;
    EXPECT(!cudaMalloc(&p, sizeof(T) * (size_t)n));
    return static_cast<T *>(p);
}

template <typename T, size_t n> void to_host(T (&to)[n], const T *from)
{
    EXPECT(!cudaStreamSynchronize(stream));
    EXPECT(!cudaMemcpy(to, from, sizeof to, cudaMemcpyDeviceToHost));
}

/* Whole numbers that bfloat16 and all sums hold exactly; no two rows or columns are alike. */
float number_at(int matrix, int row, int column)
{
    return (float)((row * 37 + column * 11 + row * column + matrix) % 29 - 14);
}

/* ---- mma ---- */

/* Where element i of a thread lies. */
int group_id(int thread) { return thread >> 2; }
int in_group(int thread) { return thread % 4; }
int a_row(int thread, int i)
{
    return (0 <= i && i < 2) || (4 <= i && i < 6) ? group_id(thread) : group_id(thread) + 8;
}
int a_column(int thread, int i) { return in_group(thread) * 2 + (i & 1) + (i < 4 ? 0 : 8); }
int b_row(int thread, int i) { return in_group(thread) * 2 + (i & 1) + (i < 2 ? 0 : 8); }
int b_column(int thread, int) { return group_id(thread); }
int c_row(int thread, int i) { return i < 2 ? group_id(thread) : group_id(thread) + 8; }
int c_column(int thread, int i) { return in_group(thread) * 2 + (i & 1); }

__global__ void mma_kernel(const uint32_t *a, const uint32_t *b, float *c)
{
    const int t = (int)threadIdx.x;
    const uint32_t mine[4] = {a[4 * t], a[4 * t + 1], a[4 * t + 2], a[4 * t + 3]};
    float sum[4] = {c[4 * t], c[4 * t + 1], c[4 * t + 2], c[4 * t + 3]};
    pp_mma(sum, mine, b[2 * t], b[2 * t + 1]);
    pp_mma(sum, mine, b[2 * t], b[2 * t + 1]); /* the second adds to the first */
    for (int i = 0; i < 4; i++) c[4 * t + i] = sum[i];
}

void product_of_fragments(int)
{
    uint32_t a[PP_WARP * 4], b[PP_WARP * 2];
    float c[PP_WARP * 4];
    for (int t = 0; t < PP_WARP; t++) {
        for (int i = 0; i < 8; i += 2)
            a[4 * t + i / 2] = pp_pair_of(number_at(0, a_row(t, i), a_column(t, i)),
                                          number_at(0, a_row(t, i + 1), a_column(t, i + 1)));
        for (int i = 0; i < 4; i += 2)
            b[2 * t + i / 2] = pp_pair_of(number_at(1, b_row(t, i), b_column(t, i)),
                                          number_at(1, b_row(t, i + 1), b_column(t, i + 1)));
        for (int i = 0; i < 4; i++) c[4 * t + i] = number_at(2, c_row(t, i), c_column(t, i));
    }
    uint32_t *d_a = memory<uint32_t>(PP_WARP * 4), *d_b = memory<uint32_t>(PP_WARP * 2);
    float *d_c = memory<float>(PP_WARP * 4);
    EXPECT(!cudaMemcpy(d_a, a, sizeof a, cudaMemcpyHostToDevice) &&
           !cudaMemcpy(d_b, b, sizeof b, cudaMemcpyHostToDevice));
    EXPECT(!cudaMemcpy(d_c, c, sizeof c, cudaMemcpyHostToDevice));
    PP_LAUNCH(mma_kernel, 1, PP_WARP, 0, stream, d_a, d_b, d_c);
    to_host(c, d_c);
    for (int t = 0; t < PP_WARP; t++)
        for (int i = 0; i < 4; i++) {
            float want = number_at(2, c_row(t, i), c_column(t, i));
            for (int k = 0; k < K; k++) want += 2 * number_at(0, c_row(t, i), k) * number_at(1, k, c_column(t, i));
            EXPECT(c[4 * t + i] == want);
        }
}

/* The same of TF32, with half as many terms: rows and columns of a's four elements, and of b's two. */
int tf32_a_row(int thread, int i) { return i == 0 || i == 2 ? group_id(thread) : group_id(thread) + 8; }
int tf32_a_column(int thread, int i) { return i == 0 || i == 1 ? in_group(thread) : in_group(thread) + 4; }
int tf32_b_row(int thread, int i) { return i == 0 ? in_group(thread) : in_group(thread) + 4; }

__global__ void tf32_kernel(const float *a, const float *b, float *c, bool rounded)
{
    const int t = (int)threadIdx.x;
    uint32_t mine[4], other[2];
    for (int i = 0; i < 4; i++) mine[i] = rounded ? pp_to_tf32(a[4 * t + i]) : __float_as_uint(a[4 * t + i]);
    for (int i = 0; i < 2; i++) other[i] = pp_to_tf32(b[2 * t + i]);
    float sum[4] = {c[4 * t], c[4 * t + 1], c[4 * t + 2], c[4 * t + 3]};
    pp_mma_tf32(sum, mine, other[0], other[1]);
    pp_mma_tf32(sum, mine, other[0], other[1]);
    for (int i = 0; i < 4; i++) c[4 * t + i] = sum[i];
}

/* Numbers that are a little more than those that TF32 can hold; what nobody rounded is no factor. */
void product_of_tf32(int)
{
    const float more = 1 + 0x1p-12f;
    float a[PP_WARP * 4], b[PP_WARP * 2], *d_a = memory<float>(PP_WARP * 4), *d_b = memory<float>(PP_WARP * 2),
                                          *d_c = memory<float>(PP_WARP * 4);
    for (int i = 0; i < PP_WARP * 4; i++)
        a[i] = more * number_at(0, tf32_a_row(i / 4, i % 4), tf32_a_column(i / 4, i % 4));
    for (int i = 0; i < PP_WARP * 2; i++) b[i] = more * number_at(1, tf32_b_row(i / 2, i % 2), group_id(i / 2));
    EXPECT(!cudaMemcpy(d_a, a, sizeof a, cudaMemcpyHostToDevice) &&
           !cudaMemcpy(d_b, b, sizeof b, cudaMemcpyHostToDevice));
    for (int rounded = 0; rounded < 2; rounded++) {
        float c[PP_WARP * 4];
        for (int i = 0; i < PP_WARP * 4; i++) c[i] = number_at(2, c_row(i / 4, i % 4), c_column(i / 4, i % 4));
        EXPECT(!cudaMemcpy(d_c, c, sizeof c, cudaMemcpyHostToDevice));
        PP_LAUNCH(tf32_kernel, 1, PP_WARP, 0, stream, d_a, d_b, d_c, (bool)rounded);
        to_host(c, d_c);
        for (int i = 0; i < PP_WARP * 4; i++) {
            const int row = c_row(i / 4, i % 4), column = c_column(i / 4, i % 4);
            float want = number_at(2, row, column);
            for (int k = 0; k < K / 2; k++) want += 2 * number_at(0, row, k) * number_at(1, k, column);
            EXPECT(rounded ? c[i] == want : isnan(c[i]));
        }
    }
}

/* ---- ldmatrix ---- */

enum { MATRICES = 4, SIDE = 8 };

/* Rows lie in memory from the last to the first: only their addresses say which is which. */
__global__ void ldmatrix_kernel(uint32_t *out, bool transposed)
{
    PP_SHARED(uint16_t, shared);
    const int t = (int)threadIdx.x, row = (PP_WARP - 1 - t) * SIDE;
    for (int i = 0; i < SIDE; i++) shared[row + i] = (uint16_t)(t * SIDE + i); /* matrix t / 8, row t % 8, column i */
    __syncwarp();
    uint32_t mine[MATRICES];
    if (transposed)
        pp_ldmatrix_transposed(mine, shared + row);
    else
        pp_ldmatrix(mine, shared + row);
    for (int m = 0; m < MATRICES; m++) out[MATRICES * t + m] = mine[m];
}

void rows_of_matrices(int)
{
    uint32_t *d_out = memory<uint32_t>(PP_WARP * MATRICES), out[PP_WARP * MATRICES];
    for (int transposed = 0; transposed < 2; transposed++) {
        PP_LAUNCH(ldmatrix_kernel, 1, PP_WARP, PP_WARP * SIDE * 2, stream, d_out, (bool)transposed);
        to_host(out, d_out);
        for (int t = 0; t < PP_WARP; t++)
            for (int m = 0; m < MATRICES; m++)
                for (int i = 0; i < 2; i++) {
                    /* thread t has row t / 4, elements 2 (t % 4) and the next; .trans: of the transposed matrix */
                    const int row = transposed ? t % 4 * 2 + i : t / 4, column = transposed ? t / 4 : t % 4 * 2 + i;
                    EXPECT((out[MATRICES * t + m] >> 16 * i & 0xffff) == (unsigned)((m * SIDE + row) * SIDE + column));
                }
    }
}

/* ---- tiles ---- */

enum { W = 32, ROWS = 32, HEAD = 16 /* columns of the matrices: the others are zeros of the tile */ };

/* c = (a b^T) b, for the first 16 rows of a: multiply() and add_product() of a warp. */
__global__ void tile_kernel(pp_attention a, const __nv_bfloat16 *of, __nv_bfloat16 *c)
{
    using namespace pp_warp;
    PP_SHARED(number, shared);
    held_rows<W> rows[1];
    sums<ROWS> score[1];
    sums<W> out[1] = {};
    fetch<W, ROWS, PP_WARP>(shared, {of, a.seq, HEAD, HEAD}, 0);
    fetch<W, ROWS, PP_WARP>(shared + ROWS * pitch<W>, {of + ROWS * HEAD, a.seq, HEAD, HEAD}, 0);
    pp_copy_wait();
    __syncwarp();
    rows[0].take(shared);
    multiply<W, ROWS>(rows, shared + ROWS * pitch<W>, score);
    add_product<W, ROWS>(score, shared + ROWS * pitch<W>, out);
    write<W>({c, a.seq, HEAD, HEAD}, 0, {1, 1}, out[0]);
}

void product_of_tiles(int)
{
    enum { SEEN = 23 /* rows that the matrices have */ };
    static __nv_bfloat16 in[2 * ROWS * HEAD], out[M * HEAD];
    const auto small = [](int matrix, int row, int column) { return (float)((int)number_at(matrix, row, column) % 3); };
    for (int i = 0; i < 2 * ROWS * HEAD; i++)
        in[i] = pp_from_float<__nv_bfloat16>(small(i / (ROWS * HEAD), i / HEAD % ROWS, i % HEAD));
    __nv_bfloat16 *d_in = memory<__nv_bfloat16>(2 * ROWS * HEAD), *d_out = memory<__nv_bfloat16>(M * HEAD);
    EXPECT(!cudaMemcpy(d_in, in, sizeof in, cudaMemcpyHostToDevice));
    pp_attention a = {};
    a.seq = SEEN;
    PP_LAUNCH(tile_kernel, 1, PP_WARP, pp_warp::bytes_of<W>(2 * ROWS), stream, a, d_in, d_out);
    to_host(out, d_out);
    for (int row = 0; row < M; row++)
        for (int column = 0; column < HEAD; column++) {
            float want = 0;
            for (int j = 0; j < SEEN; j++) {
                float score = 0;
                for (int k = 0; k < HEAD; k++) score += small(0, row, k) * small(1, j, k);
                want += score * small(1, j, column);
            }
            EXPECT(fabsf(want) <= 256 && pp_to_float(out[row * HEAD + column]) == want); /* exact as bfloat16 */
        }
}

/* ---- copies ---- */

/* how: 0 as it should be; 1 nobody waits before reading; 2 the end comes before the copy's; 3 not aligned */
__global__ void copy_kernel(const float *from, float *out, int how)
{
    PP_SHARED(float, shared);
    const int t = (int)threadIdx.x;
    pp_copy_start<PP_COPY_BYTES>(shared + 4 * t + (how == 3), from + 4 * t, t % 2 == 0);
    if (how == 1) out[t] = shared[4 * t + 1];
    if (how != 2) pp_copy_wait();
    if (how == 0) out[t] = shared[4 * t + 1];
}

void run_copies(int how, float (&out)[PP_WARP])
{
    float in[4 * PP_WARP], *d_in = memory<float>(4 * PP_WARP), *d_out = memory<float>(PP_WARP);
    for (int i = 0; i < 4 * PP_WARP; i++) in[i] = (float)i;
    EXPECT(!cudaMemcpy(d_in, in, sizeof in, cudaMemcpyHostToDevice));
    PP_LAUNCH(copy_kernel, 1, PP_WARP, sizeof in + 16, stream, d_in, d_out, how);
    if (how < 2) to_host(out, d_out);
}

void copies(int)
{
    float out[PP_WARP];
    run_copies(0, out);
    for (int t = 0; t < PP_WARP; t++) EXPECT(out[t] == (t % 2 ? 0 : (float)(4 * t + 1)));
    run_copies(1, out); /* where threads run in reverse copies land at once, else only when they are waited for */
    for (int t = 0; t < PP_WARP; t += 2) EXPECT((out[t] == (float)(4 * t + 1)) == (getenv("PP_EMULATE_ORDER") != NULL));
}

void copy_at_the_end(int)
{
    float out[PP_WARP];
    run_copies(2, out);
    EXPECT(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure);
}

void copy_not_aligned(int)
{
    float out[PP_WARP];
    run_copies(3, out);
    EXPECT(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure);
}

/* ---- the program ---- */

const char *const reverse[] = {"PP_EMULATE_ORDER=reverse", NULL};

template <void (*body)(int)> void in_stream(int process)
{
    EXPECT(!cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    body(process);
}

template <void (*body)(int)> void test_both_orders(void **)
{
    in_processes(1, in_stream<body>, NULL);
    in_processes(1, in_stream<body>, reverse);
}

void test_faults(void **)
{
    in_processes(1, in_stream<copy_at_the_end>, NULL);
    in_processes(1, in_stream<copy_not_aligned>, NULL);
    in_processes(1, in_stream<copy_not_aligned>, reverse);
}

} // namespace

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"product of fragments", test_both_orders<product_of_fragments>, NULL, NULL, NULL},
        {"product of fragments in TF32", test_both_orders<product_of_tf32>, NULL, NULL, NULL},
        {"rows of matrices", test_both_orders<rows_of_matrices>, NULL, NULL, NULL},
        {"product of tiles", test_both_orders<product_of_tiles>, NULL, NULL, NULL},
        {"copies", test_both_orders<copies>, NULL, NULL, NULL},
        cmocka_unit_test(test_faults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
