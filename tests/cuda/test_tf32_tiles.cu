/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the kernels of TF32 products write what they sum (kernels/cuda/tf32_tiles.cuh), for all tiles that there are.
 * Which number of C a thread's sum is follows from the tables of the PTX ISA ("Matrix fragments for wgmma.mma_async"),
 * written down here once more, and, of B as it lies, from the numbers that the thread loads from a stage as the copy
 * engine leaves it. Instead of sums there are places: each number of C must be written once, and be its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <vector>

extern "C" {
#include <cmocka.h>
}

#include "kernels/cuda/tf32_tiles.cuh"

namespace
{

using namespace pp_tf32;

enum { MULTIPLIERS = 2, MOST_PLACES = 1 << 24 }; /* of whole numbers that a float holds */

/* Row of the first factor, 64 x 8 for each group, and of its sums, 64 x N; column of the sums. */
int first_row(int thread, int i) { return thread / 128 * 64 + thread % 128 / 32 * 16 + thread % 32 / 4 + 8 * (i % 2); }
int first_term(int thread, int i) { return thread % 4 + 4 * (i / 2); }
int sum_row(int thread, int i)
{
    return thread / 128 * 64 + thread % 128 / 32 * 16 + thread % 32 / 4 + 8 * (i / 2 % 2);
}
int sum_column(int thread, int i) { return i / 4 * 8 + thread % 4 * 2 + i % 2; }

/* A stage of B as it lies: boxes of 32 terms and 32 columns, whose rows are eight pieces of four numbers, exchanged.
 * The number at a byte, as term * columns + column. */
int loaded(int byte)
{
    const int box = byte / (32 * 128), term = byte / 128 % 32, piece = byte / 16 % 8 ^ term % 8;
    return term * PP_TF32_COLUMNS + box * 32 + piece * 4 + byte / 4 % 4;
}

/* Which column of B each row of the first factor is. */
void read_columns(bool as_it_lies, int (&columns)[PP_TF32_COLUMNS])
{
    for (int &column : columns) column = -1;
    for (int thread = 0; thread < MULTIPLIERS * PP_GROUP; thread++) {
        threadIdx.x = (unsigned)thread;
        const thread_part part = part_of(as_it_lies);
        for (int i = 0; i < 4; i++) {
            const int row = first_row(thread, i);
            int column = row;
            for (int eight = 0; eight < STEP_PRODUCTS && as_it_lies; eight++) {
                const int byte = part.begin + eight * 8 * 128 + (i < 2 ? part.low : part.high) + i % 2 * 4;
                const int number = loaded(byte);
                column = number % PP_TF32_COLUMNS;
                assert_int_equal(number / PP_TF32_COLUMNS, eight * 8 + first_term(thread, i));
                assert_true(columns[row] < 0 || columns[row] == column);
                columns[row] = column;
            }
            columns[row] = column;
        }
    }
}

/* A warp's loads of two numbers at a time take two turns, of sixteen lanes each: no two of these want the same bank. */
void check_banks(void)
{
    for (int lane = 0; lane < MULTIPLIERS * PP_GROUP; lane += 16)
        for (int high = 0; high < 2; high++) {
            bool used[16] = {};
            for (int i = lane; i < lane + 16; i++) {
                threadIdx.x = (unsigned)i;
                const thread_part part = part_of(true);
                const int bank = (part.begin + (high ? part.high : part.low)) / 8 % 16;
                assert_false(used[bank]);
                used[bank] = true;
            }
        }
}

struct matrix {
    std::vector<float> numbers;
    int pitch;
    bool across;
    size_t at(int row, int column) const
    {
        return across ? (size_t)column * (size_t)pitch + (size_t)row : (size_t)row * (size_t)pitch + (size_t)column;
    }
};

template <class T, bool as_it_lies> void write_all(const product &p, const int (&columns)[PP_TF32_COLUMNS])
{
    for (int block = 0; block < p.clusters_wide * p.clusters_high * T::TOGETHER; block++) {
        const int rank = block % T::TOGETHER, beside = rank % T::COLUMNS_BESIDE, above = rank / T::COLUMNS_BESIDE;
        const tile at = tile_of<T>(p, beside, above, block / T::TOGETHER);
        for (int thread = 0; thread < MULTIPLIERS * PP_GROUP; thread++) {
            threadIdx.x = (unsigned)thread;
            float sums[T::SUMS];
            for (int i = 0; i < T::SUMS; i++)
                sums[i] = (float)((at.row + sum_column(thread, i)) * p.n + at.column + columns[sum_row(thread, i)] + 1);
            if (as_it_lies && p.across)
                write_across<T>(sums, p, at, part_of(as_it_lies));
            else
                write_tile<T, as_it_lies>(sums, p, at, part_of(as_it_lies));
        }
    }
}

/* C is added to, once. Around it and between its rows there are zeros, which stay. */
template <class T, bool as_it_lies> void check(int m, int n, bool across)
{
    enum { AROUND = 4 };
    product p = {};
    matrix c = {{}, (across ? m : n) + AROUND, across};
    p.m = m, p.n = n, p.c_pitch = c.pitch, p.adds = true, p.across = across;
    divide<T>(p);
    assert_true((int64_t)(m + 2 * T::ROWS) * n < MOST_PLACES);
    c.numbers.assign((size_t)(across ? n : m) * (size_t)c.pitch + 2 * AROUND, 0);
    p.c = c.numbers.data() + AROUND;
    int columns[PP_TF32_COLUMNS];
    read_columns(as_it_lies, columns);
    write_all<T, as_it_lies>(p, columns);
    for (int row = 0; row < m; row++)
        for (int column = 0; column < n; column++) {
            float &number = c.numbers[AROUND + c.at(row, column)];
            assert_float_equal(number, (float)(row * n + column + 1), 0);
            number = 0;
        }
    for (float number : c.numbers) assert_float_equal(number, 0, 0);
}

template <class T> void check_tiles(void)
{
    static const int ms[] = {4, 8, 36, T::ROWS - 4, T::ROWS, T::ROWS + 4, 3 * T::ROWS + 12};
    static const int ns[] = {4, 60, 64, 68, 124, 128, 132, 256, 520};
    for (int m : ms)
        for (int n : ns) {
            check<T, false>(m, n, false);
            check<T, true>(m, n, false);
            check<T, true>(m, n, true);
        }
}

void test_tiles(void **)
{
#define X(rows, beside, above, stages, worth) check_tiles<tile_shape<rows, beside, above, stages>>();
    PP_TF32_TILE_LIST(X)
#undef X
}

void test_banks(void **) { check_banks(); }

} // namespace

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tiles), cmocka_unit_test(test_banks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
