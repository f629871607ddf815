/* SPDX-License-Identifier: Apache-2.0
 *
 * What calls of kernels do: bytes that they move, counted by hand; operations, by the arithmetic that does them, beside
 * the loops of the kernels of attention, walked tile by tile. (On tensor cores: emulated.attention, attention_tf32.)
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/kernels.h"

/* Of a call that has all its operands but this one and those that only some norms have. */
static void check_bytes_without(int missing, struct pp_call call, double expected)
{
    for (int i = 0; i < 7; i++)
        if (i != missing && pp_call_operand(&call, i).name) call.ref[i].region = PP_MEM_ACT;
    assert_true(pp_call_bytes(&call) == expected);
}

static void check_bytes(struct pp_call call, double expected) { check_bytes_without(-1, call, expected); }

static void test_bytes_moved(void **state)
{
    (void)state;
    const int m = 175, n = 600, k = 200, t = 5 * 35;
    check_bytes((struct pp_call){PP_KERNEL_GEMM_NT, .gemm = {m, n, k}}, 4.0 * (m * k + n * k + m * n));
    check_bytes((struct pp_call){PP_KERNEL_GEMM_NT, .gemm = {m, n, k}, .precision = PP_BF16},
                2.0 * (m * k + n * k + m * n));
    check_bytes((struct pp_call){PP_KERNEL_GEMM_TN, .gemm = {m, n, k, 0, 1}, .precision = PP_BF16},
                2.0 * (m * k + n * k) + 4.0 * m * n);
    check_bytes((struct pp_call){PP_KERNEL_GEMM_TN, .gemm = {m, n, k, 0, 1, 3}, .precision = PP_BF16},
                3 * (2.0 * (m * k + n * k) + 4.0 * m * n));
    assert_true(pp_call_flops(&(struct pp_call){PP_KERNEL_GEMM_TN, .gemm = {m, n, k, 0, 1, 3}}) == 3 * 2.0 * m * n * k);
    check_bytes((struct pp_call){PP_KERNEL_EMBED, .embed = {5, 35, 200, 1000}, .precision = PP_BF16},
                t * 200 * (2 + 4 + 4.0));
    check_bytes((struct pp_call){PP_KERNEL_ATTENTION, .attention = {5, 35, 2, 100, 1}}, 4.0 * t * 2 * (7 * 100 + 35));
    check_bytes((struct pp_call){PP_KERNEL_FLASH, .attention = {5, 35, 2, 100, 1}}, 4.0 * t * 2 * (7 * 100 + 1));
    check_bytes((struct pp_call){PP_KERNEL_FLASH, .attention = {5, 35, 8, 100, 1, 2}},
                4.0 * t * (8 * 101 + 2 * 12 * 100));
    check_bytes_without(3, (struct pp_call){PP_KERNEL_FLASH, .attention = {5, 35, 8, 100, 1, 2}},
                        4.0 * t * (8 * 101 + 12 * 100));
    check_bytes((struct pp_call){PP_KERNEL_ROPE, .attention = {5, 35, 8, 100, 0, 2}}, 4.0 * t * 2 * 12 * 100);
    check_bytes_without(1, (struct pp_call){PP_KERNEL_ROPE, .attention = {5, 35, 8, 100, 0, 2}},
                        4.0 * t * 2 * 10 * 100);
    check_bytes((struct pp_call){PP_KERNEL_ROPE_GRAD, .attention = {5, 35, 8, 100, 0, 2}, .precision = PP_BF16},
                2.0 * t * 2 * 10 * 100);
    check_bytes((struct pp_call){PP_KERNEL_EMBED, .embed = {5, 35, 200, 1000, 1}}, t * 200 * (4 + 4.0));
    check_bytes((struct pp_call){PP_KERNEL_EMBED, .embed = {5, 35, 200, 1000, PP_POSITIONS_LEARNED}},
                t * 200 * (4 + 4 + 4.0));
    check_bytes((struct pp_call){PP_KERNEL_POSITIONS_GRAD, .positions = {5, 35, 200, 64}, .precision = PP_BF16},
                200 * (t * 2 + 64 * 4.0));
    check_bytes((struct pp_call){PP_KERNEL_FLASH_GRAD, .attention = {5, 35, 2, 100, 1}, .precision = PP_BF16},
                t * 2 * (8 * 100 * 2 + 4.0));
    const struct pp_ref act = {.region = PP_MEM_ACT};
    check_bytes((struct pp_call){PP_KERNEL_LAYERNORM, .norm = {5, 35, 200}}, 4.0 * t * 200 * 4);
    check_bytes((struct pp_call){PP_KERNEL_LAYERNORM, .norm = {5, 35, 200}, .at.norm.sum = act}, 4.0 * t * 200 * 5);
    check_bytes((struct pp_call){PP_KERNEL_LAYERNORM, .norm = {5, 35, 200, 1}}, 4.0 * t * 200 * 3);
    check_bytes((struct pp_call){PP_KERNEL_LAYERNORM_GRAD, .norm = {5, 35, 200}}, 4.0 * t * 200 * 4);
    check_bytes((struct pp_call){PP_KERNEL_LAYERNORM_GRAD, .norm = {5, 35, 200, 1}, .at.norm_grad.add = act},
                4.0 * t * 200 * 4);
    check_bytes((struct pp_call){PP_KERNEL_GELU, .activation = {5, 35, 200}, .precision = PP_BF16}, 2.0 * t * 200 * 3);
    check_bytes((struct pp_call){PP_KERNEL_RMSNORM, .norm = {5, 35, 200, 1}}, 4.0 * t * 200 * 3);
    check_bytes((struct pp_call){PP_KERNEL_RMSNORM_GRAD, .norm = {5, 35, 200}, .at.norm_grad.add = act},
                4.0 * t * 200 * 5);
    check_bytes((struct pp_call){PP_KERNEL_SWIGLU, .activation = {5, 35, 200}, .precision = PP_BF16},
                2.0 * t * 200 * 5);
    check_bytes((struct pp_call){PP_KERNEL_SWIGLU_GRAD, .activation = {5, 35, 200}, .precision = PP_BF16},
                2.0 * t * 200 * 5);
    check_bytes_without(2, (struct pp_call){PP_KERNEL_SWIGLU, .activation = {5, 35, 200}}, 4.0 * t * 200 * 3);
    check_bytes_without(2, (struct pp_call){PP_KERNEL_GELU, .activation = {5, 35, 200}}, 4.0 * t * 200 * 2);
    check_bytes_without(1, (struct pp_call){PP_KERNEL_RELU, .activation = {5, 35, 200}}, 4.0 * t * 200 * 2);
    check_bytes((struct pp_call){PP_KERNEL_CROSS_ENTROPY, .loss = {5, 35, 1000, 1, 1024}}, 4.0 * t * 2000);
    check_bytes((struct pp_call){PP_KERNEL_CROSS_ENTROPY, .loss = {5, 35, 1000, 0, 1024}}, 4.0 * t * 1000);
    check_bytes((struct pp_call){PP_KERNEL_SGD, .step = {600, 200}, .precision = PP_BF16}, 600 * 200 * (12 + 2.0));
    check_bytes((struct pp_call){PP_KERNEL_ADAMW, .step = {600, 200}, .precision = PP_BF16}, 600 * 200 * (28 + 2.0));
    check_bytes((struct pp_call){PP_KERNEL_ADAMW_BF16, .step = {600, 200}}, 600 * 200 * (20 + 2.0));
}

/* A factor of FP8 is a byte a number. Passes read bfloat16; rounding writes it one way, or both. */
static void test_bytes_moved_in_fp8(void **state)
{
    (void)state;
    const int m = 176, n = 608, k = 208;
    check_bytes((struct pp_call){PP_KERNEL_GEMM_FP8, .gemm = {m, n, k}, .precision = PP_BF16},
                1.0 * (m * k + n * k) + 2.0 * m * n);
    check_bytes((struct pp_call){PP_KERNEL_GEMM_FP8, .gemm = {m, n, k, 0, 1, 3}, .precision = PP_BF16},
                3 * (1.0 * (m * k + n * k) + 4.0 * m * n));
    check_bytes((struct pp_call){PP_KERNEL_AMAX, .fp8 = {m, k, 3}, .precision = PP_BF16}, 3 * 2.0 * m * k);
    check_bytes((struct pp_call){PP_KERNEL_TO_FP8, .fp8 = {m, k, 3}, .precision = PP_BF16}, 3 * (2 + 2.0) * m * k);
    for (int way = 0; way < 2; way++)
        check_bytes_without(way, (struct pp_call){PP_KERNEL_TO_FP8, .fp8 = {m, k}, .precision = PP_BF16},
                            (2 + 1.0) * m * k);
}

/* Places that have tokens are read and written then, and no others. */
static void test_bytes_moved_where_gradients_are_added(void **state)
{
    (void)state;
    for (int places = 35; places <= 1024; places += 989) {
        struct pp_call call = {PP_KERNEL_POSITIONS_GRAD, .positions = {5, 35, 200, places}, .adds = true};
        call.at.positions_grad.positions_grad.region = call.at.positions_grad.dy.region = PP_MEM_ACT;
        assert_true(pp_call_work(&call, false).bytes == 4.0 * 200 * (5 * 35 + 2 * 35));
    }
}

static void check_each_flops(const struct pp_call *call, bool gpu, const double expected[PP_PRECISIONS])
{
    const struct pp_work work = pp_call_work(call, gpu);
    for (int i = 0; i < PP_PRECISIONS; i++)
        if (work.flops[i] != expected[i]) fail_msg("%.0f operations, not %.0f", work.flops[i], expected[i]);
}

static void check_flops(struct pp_call call, bool gpu, double fp32, double tf32, double bf16)
{
    check_each_flops(&call, gpu, (const double[PP_PRECISIONS]){fp32, tf32, bf16});
}

static void test_arithmetic_in_fp8(void **state)
{
    (void)state;
    const struct pp_call product = {PP_KERNEL_GEMM_FP8, .gemm = {176, 608, 208, 0, 0, 3}, .precision = PP_BF16},
                         rounding = {PP_KERNEL_TO_FP8, .fp8 = {176, 208}, .precision = PP_BF16},
                         amax = {PP_KERNEL_AMAX, .fp8 = {176, 208}, .precision = PP_BF16};
    check_each_flops(&product, true, (const double[PP_PRECISIONS]){[PP_FP8] = 3 * 2.0 * 176 * 608 * 208});
    check_each_flops(&rounding, true, (const double[PP_PRECISIONS]){pp_call_flops(&rounding)});
    check_each_flops(&amax, true, (const double[PP_PRECISIONS]){pp_call_flops(&amax)});
}

static void check_product(struct pp_call call, struct pp_product expected)
{
    const struct pp_product p = pp_call_work(&call, true).product;
    assert_true(p.m == expected.m && p.n == expected.n && p.k == expected.k && p.times == expected.times);
    assert_int_equal(p.moved_bytes, expected.moved_bytes);
}

static void test_shape_of_products(void **state)
{
    (void)state;
    check_product((struct pp_call){PP_KERNEL_GEMM_NT, .gemm = {3, 4, 5}}, (struct pp_product){3, 4, 5, 1, 4});
    check_product((struct pp_call){PP_KERNEL_GEMM_TN, .gemm = {3, 4, 5, 0, 0, 7}, .precision = PP_BF16},
                  (struct pp_product){3, 4, 5, 7, 2});
    check_product((struct pp_call){PP_KERNEL_GEMM_NN, .gemm = {3, 4, 5, 0, 1, 7}, .precision = PP_BF16},
                  (struct pp_product){3, 4, 5, 7, 4});
    check_product((struct pp_call){PP_KERNEL_GEMM_FP8, .gemm = {16, 32, 48, 0, 0, 7}, .precision = PP_BF16},
                  (struct pp_product){16, 32, 48, 7, 2});
    check_product((struct pp_call){PP_KERNEL_GEMM_FP8, .gemm = {16, 32, 48, 0, 1}, .precision = PP_BF16},
                  (struct pp_product){16, 32, 48, 1, 4});
    check_product((struct pp_call){PP_KERNEL_RELU, .activation = {3, 4, 5}}, (struct pp_product){0});
}

static void test_arithmetic(void **state)
{
    (void)state;
    static const int pointwise[] = {PP_KERNEL_EMBED,         PP_KERNEL_POSITIONS_GRAD, PP_KERNEL_ROPE,
                                    PP_KERNEL_LAYERNORM,     PP_KERNEL_RMSNORM_GRAD,   PP_KERNEL_RESIDUAL,
                                    PP_KERNEL_RELU,          PP_KERNEL_GELU,           PP_KERNEL_SWIGLU_GRAD,
                                    PP_KERNEL_CROSS_ENTROPY, PP_KERNEL_COLSUM,         PP_KERNEL_ADAMW};
    const double product = 2.0 * 175 * 600 * 200;
    check_flops((struct pp_call){PP_KERNEL_GEMM_NT, .gemm = {175, 600, 200}}, true, product, 0, 0);
    check_flops((struct pp_call){PP_KERNEL_GEMM_NN, .gemm = {175, 600, 200}, .precision = PP_TF32}, true, 0, product,
                0);
    check_flops((struct pp_call){PP_KERNEL_GEMM_TN, .gemm = {175, 600, 200}, .precision = PP_BF16}, true, 0, 0,
                product);
    for (size_t i = 0; i < sizeof pointwise / sizeof *pointwise; i++)
        for (int precision = 0; precision < PP_PRECISIONS; precision++) {
            const struct pp_call call = {pointwise[i], .n = {5, 36, 8, 64}, .precision = precision};
            check_flops(call, true, pp_call_flops(&call), 0, 0);
        }
    /* Four rows, two heads of 64 columns, of 32 tokens. On tensor cores two tiles of 16 queries and one of 64 keys. */
    const double scores = 4 * 2 * 32 * 32;
    for (int precision = 0; precision < PP_PRECISIONS; precision++) {
        const struct pp_call math = {PP_KERNEL_ATTENTION, .attention = {4, 32, 2, 64, 1}, .precision = precision},
                             odd = {PP_KERNEL_FLASH, .attention = {4, 64, 2, 140, 0}, .precision = precision};
        const double tf32 = precision == PP_TF32 ? scores * 256 : 0, bf16 = precision == PP_BF16 ? scores * 256 : 0;
        check_flops(math, true, scores * (4 * 64 + 6) - tf32 - bf16, tf32, bf16);
        assert_true(pp_call_work(&math, true).shared_bytes == 0 && pp_call_work(&odd, true).shared_bytes == 0);
        check_flops(odd, true, 4 * scores * (2 * 144 + 2 * 256 + 6), 0, 0);
    }
    check_flops((struct pp_call){PP_KERNEL_GELU, .activation = {5, 36, 8, 1}}, true, 34.0 * 5 * 36 * 8, 0, 0);
    check_flops((struct pp_call){PP_KERNEL_GELU_GRAD, .activation = {5, 36, 8, 1}}, true, 39.0 * 5 * 36 * 8, 0, 0);
    const struct pp_call flash = {PP_KERNEL_FLASH, .attention = {4, 32, 2, 64, 1}, .precision = PP_BF16};
    check_flops(flash, true, 6 * 2 * scores, 0, 2 * scores * 4 * 64);
    /* 144 columns are as 192; backward seven products, and two of them once more. */
    const struct pp_call wide = {PP_KERNEL_FLASH, .attention = {4, 64, 2, 144, 0}, .precision = PP_BF16},
                         wide_grad = {PP_KERNEL_FLASH_GRAD, .attention = {4, 64, 2, 144, 0}, .precision = PP_BF16};
    check_flops(wide, true, 6 * 4 * scores, 0, 4 * scores * 2 * 2 * 192);
    check_flops(wide_grad, true, 2 * 9 * 4 * scores, 0, 4 * scores * 9 * 2 * 192);
    /* 128 fragments of 512 bytes for a tile of a warp, and an eighth of 64 keys and values of 128 bytes */
    assert_true(pp_call_work(&flash, true).shared_bytes == 4 * 2 * 2 * (128 * 512 * 64 / 256.0 + 64 * 2 * 128 / 8.0));
    /* Of 128 columns a warp has 32 queries: 32 fragments of keys, 16 of queries, 32 of values; a fourth of copies. */
    const struct pp_call twice = {PP_KERNEL_FLASH, .attention = {4, 32, 2, 128, 1}, .precision = PP_BF16};
    assert_true(pp_call_work(&twice, true).shared_bytes == 4 * 2 * ((32 + 16 + 32) * 512 + 64 * 2 * 256 / 4.0));
}

/* What is not hidden behind products: clocks for scores on tensor cores, and a bias that is added before. */
static void test_in_turn(void **state)
{
    (void)state;
    struct pp_call call = {PP_KERNEL_FLASH, .attention = {4, 128, 2, 64, 0}, .precision = PP_BF16};
    assert_true(pp_call_work(&call, true).clocks == 0.21 * 8 * 128 * 128);
    call.at.flash.qkv.region = call.at.flash.bias.region = PP_MEM_ACT; /* 4 * 128 tokens, 3 * 2 * 64 columns of bf16 */
    assert_true(pp_call_work(&call, true).bytes_before == 1024 * 768 && pp_call_work(&call, true).bytes == 512 * 768);
    assert_true(pp_call_work(&call, false).bytes_before == 0 && pp_call_work(&call, false).clocks == 0);
    call.kernel = PP_KERNEL_FLASH_GRAD, call.attention.dh = 192; /* two blocks make all scores of keys and values */
    assert_true(pp_call_work(&call, true).clocks == 1.5 * 8 * 128 * 128 && pp_call_work(&call, true).bytes_before == 0);
}

/* Multiplications and additions of the loops of kernels/cuda/attention_long.cu and attention_flash.cu. */
struct loops {
    double scores, columns; /* of products in whose tiles scores are the sums; the terms */
};

static int least(int a, int b) { return a < b ? a : b; }
static int in_steps(int n, int step) { return (n + step - 1) / step * step; }

static struct loops walk(int seq, bool causal, int window)
{
    struct loops sum = {0, 0};
    for (int i = 0; i < seq; i += 64) {
        const int last_key = causal ? least(seq, i + 64) : seq;
        for (int j = window && i >= window ? (i + 1 - window) / 64 * 64 : 0; j < last_key; j += 64) {
            sum.scores += 64 * 64;
            for (int term = j; term < least(last_key, j + 64); term += 16) sum.columns += 64 * 16;
        }
    }
    return sum;
}

static void test_tiles_of_long_rows(void **state)
{
    (void)state;
    static const int rows[] = {129, 160, 192, 500, 1024, 1111}, heads[] = {16, 33, 64, 100, 128, 250, 260};
    static const int windows[] = {0, 0, 1, 64, 65, 200, 999}; /* the first without a mask */
    for (int i = 0; i < 6 * 7 * 7; i++) {
        const int seq = rows[i % 6], dh = heads[i / 6 % 7], causal = i >= 42, window = windows[i / 42],
                  terms = in_steps(dh, 16);
        const int block = dh <= 64    ? 64
                          : dh <= 128 ? 128
                                      : 256,
                  columns = in_steps(dh, block), blocks = columns / block;
        const struct loops t = walk(seq, causal, window);
        check_flops((struct pp_call){PP_KERNEL_ATTENTION, .attention = {1, seq, 1, dh, causal, 0, 0, window}}, true,
                    t.scores * (2 * terms + 6) + 2 * t.columns * in_steps(dh, 64), 0, 0);
        check_flops((struct pp_call){PP_KERNEL_ATTENTION_GRAD, .attention = {1, seq, 1, dh, causal, 0, 0, window}},
                    true, t.scores * (2 * terms + 6) + 2 * 3 * t.columns * in_steps(dh, 64), 0, 0);
        check_flops((struct pp_call){PP_KERNEL_FLASH, .attention = {1, seq, 1, dh, causal, 0, 0, window}}, true,
                    t.scores * (2 * terms * blocks + 6) + 2 * t.columns * columns, 0, 0);
        check_flops((struct pp_call){PP_KERNEL_FLASH_GRAD, .attention = {1, seq, 1, dh, causal, 0, 0, window}}, true,
                    t.scores * (2 * 4 * terms * blocks + 2 * 9) + 2 * 3 * t.columns * columns, 0, 0);
    }
}

/* Blocks of 64 queries, and what they see; stored scores are all made. */
static void test_processor(void **state)
{
    (void)state;
    const double seen = 64 * 64 + 64 * 128 + 22 * 150, all = 150 * 150;
    check_flops((struct pp_call){PP_KERNEL_ATTENTION, .attention = {1, 150, 1, 20, 1}}, false, all * (4 * 20 + 6), 0,
                0);
    check_flops((struct pp_call){PP_KERNEL_ATTENTION_GRAD, .attention = {1, 150, 1, 20, 1}}, false, all * (8 * 20 + 6),
                0, 0);
    check_flops((struct pp_call){PP_KERNEL_FLASH, .attention = {1, 150, 1, 20, 0}}, false, all * (4 * 20 + 6), 0, 0);
    check_flops((struct pp_call){PP_KERNEL_FLASH, .attention = {1, 150, 1, 20, 1}}, false, seen * (4 * 20 + 6), 0, 0);
    check_flops((struct pp_call){PP_KERNEL_FLASH_GRAD, .attention = {1, 150, 1, 20, 1}}, false, seen * (10 * 20 + 9), 0,
                0);
    /* With a window stored ones, too, are made in blocks, from a multiple of 16 keys on. */
    const double some = 64 * 64 + 64 * (128 - 48) + 22 * (150 - 112);
    for (int kernel = PP_KERNEL_ATTENTION; kernel <= PP_KERNEL_FLASH_GRAD; kernel++) {
        const int products = (int[]){4, 8, 4, 10}[kernel - PP_KERNEL_ATTENTION],
                  others = kernel == PP_KERNEL_FLASH_GRAD ? 9 : 6;
        check_flops((struct pp_call){kernel, .attention = {1, 150, 1, 20, 1, 0, 0, 17}}, false,
                    some * (products * 20 + others), 0, 0);
    }
    /* Of long rows a period is counted once. */
    double walked = 0;
    for (int i = 0; i < 5000; i += 64)
        walked += (double)(least(5000, i + 64) - i) * (least(5000, i + 64) - (i >= 300 ? (i + 1 - 300) / 16 * 16 : 0));
    check_flops((struct pp_call){PP_KERNEL_FLASH, .attention = {1, 5000, 1, 20, 1, 0, 0, 300}}, false,
                walked * (4 * 20 + 6), 0, 0);
}

/* Values that are not as wide as keys: each product counts its own columns, but on tensor cores the wider ones. */
static void check_widths(int dh, int dv, double block)
{
    enum { SEQ = 200 };
    const struct loops t = walk(SEQ, 1, 0);
    const int terms = in_steps(dh, 16), of_values = in_steps(dv, 16), widest = dh > dv ? dh : dv;
    const double columns = in_steps(widest, (int)block), blocks = columns / block,
                 tensor = in_steps(widest, widest > 128 ? 64 : 32);
    const double made = in_steps(dv, 64), grads = 2 * in_steps(dh, 64) + made, pair = terms + of_values;
    struct pp_call call = {.attention = {1, SEQ, 1, dh, 1, .dv = dv}};
    for (call.kernel = PP_KERNEL_ATTENTION; call.kernel <= PP_KERNEL_FLASH_GRAD; call.kernel++) {
        const double flops[] = {t.scores * (2 * terms + 6) + 2 * t.columns * made,
                                t.scores * (2 * of_values + 6) + 2 * t.columns * grads,
                                t.scores * (2 * terms * blocks + 6) + 2 * t.columns * columns,
                                t.scores * (2 * 2 * pair * blocks + 2 * 9) + 2 * 3 * t.columns * columns};
        check_flops(call, true, flops[call.kernel - PP_KERNEL_ATTENTION], 0, 0);
    }
    call.kernel = PP_KERNEL_FLASH;
    call.precision = PP_BF16;
    double scores = 0;
    const int rows = tensor == 96 || tensor == 128 ? 32 : 16; /* of a warp */
    for (int i = 0; i < SEQ; i += rows) scores += rows * in_steps(least(SEQ, i + rows), widest > 128 ? 32 : 64);
    assert_true(pp_call_work(&call, true).flops[PP_BF16] == scores * 2 * 2 * tensor);
}

static void test_widths(void **state)
{
    (void)state;
    const double all = 150 * 150, seen = 64 * 64 + 64 * 128 + 22 * 150;
    struct pp_call call = {.attention = {1, 150, 1, 20, 1, .dv = 12}};
    for (call.kernel = PP_KERNEL_ATTENTION; call.kernel <= PP_KERNEL_FLASH_GRAD; call.kernel++)
        check_flops(call, false,
                    (double[]){all * (2 * 32 + 6), all * (4 * 32 + 6), seen * (2 * 32 + 6),
                               seen * (4 * 32 + 2 * 20 + 9)}[call.kernel - PP_KERNEL_ATTENTION],
                    0, 0);
    check_widths(192, 128, 256);
    check_widths(48, 80, 128);
    check_widths(64, 32, 64);
}

/* Scores of tiles that some query of two chunks of a row sees, of worker `rank`. */
static double seen_by(int rank, int context, int chunk, int queries, int keys, int window)
{
    const int step = keys > 1 ? keys : 16; /* in which a window's first key is found */
    double made = 0;
    for (int i = 0; i < 2 * chunk; i += queries) {
        int first = 2 * context * chunk, last = 0;
        for (int q = i; q < i + queries && q < 2 * chunk; q++) {
            const int place = (q < chunk ? rank : 2 * context - 1 - rank) * chunk + q % chunk;
            first = place < first ? place : first;
            last = place > last ? place : last;
        }
        const int hidden = window && first >= window ? (first + 1 - window) / step * step : 0;
        made += queries * (in_steps(last + 1, keys) - hidden);
    }
    return made;
}

/* The worker counts that has most to do. */
static void test_windows_of_chunks(void **state)
{
    (void)state;
    enum { COLUMNS = 64, CONTEXT = 3, CHUNK = 256 };
    for (int window = 1; window < 2 * CONTEXT * CHUNK; window += 77) {
        double cores = 0, blocks = 0;
        for (int rank = 0; rank < CONTEXT; rank++) {
            cores = fmax(cores, seen_by(rank, CONTEXT, CHUNK, 16, 64, window));
            blocks = fmax(blocks, seen_by(rank, CONTEXT, CHUNK, 64, 1, window));
        }
        struct pp_call call = {.kernel = PP_KERNEL_FLASH,
                               .attention = {1, 2 * CHUNK, 1, COLUMNS, 1, 0, 2 * CONTEXT * CHUNK, window},
                               .precision = PP_BF16};
        assert_true(pp_call_work(&call, true).flops[PP_BF16] == cores * 2 * 2 * COLUMNS);
        call.precision = PP_FP32;
        assert_true(pp_call_work(&call, false).flops[PP_FP32] == blocks * (4 * COLUMNS + 6));
    }
}

/* Of chunks that are whole tiles all workers make as many. A processor's blocks begin with chunks. */
static void test_chunks_of_rows(void **state)
{
    (void)state;
    enum { COLUMNS = 64, CONTEXT = 3 };
    for (int chunk = 64; chunk <= 512; chunk *= 2)
        for (int rank = 0; rank < CONTEXT; rank++) {
            struct pp_call call = {.kernel = PP_KERNEL_FLASH,
                                   .attention = {1, 2 * chunk, 1, COLUMNS, 1, 0, 2 * CONTEXT * chunk},
                                   .precision = PP_BF16};
            const double cores = seen_by(rank, CONTEXT, chunk, 16, 64, 0),
                         blocks = seen_by(rank, CONTEXT, chunk, 64, 1, 0);
            assert_true(pp_call_work(&call, true).flops[PP_BF16] == cores * 2 * 2 * COLUMNS);
            call.precision = PP_FP32;
            assert_true(pp_call_work(&call, false).flops[PP_FP32] == blocks * (4 * COLUMNS + 6));
            call.attention.causal = 0;
            assert_true(pp_call_work(&call, false).flops[PP_FP32] ==
                        (double)chunk * chunk * 4 * CONTEXT * (4 * COLUMNS + 6));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chunks_of_rows),
                                       cmocka_unit_test(test_windows_of_chunks),
                                       cmocka_unit_test(test_bytes_moved),
                                       cmocka_unit_test(test_bytes_moved_in_fp8),
                                       cmocka_unit_test(test_bytes_moved_where_gradients_are_added),
                                       cmocka_unit_test(test_shape_of_products),
                                       cmocka_unit_test(test_arithmetic),
                                       cmocka_unit_test(test_arithmetic_in_fp8),
                                       cmocka_unit_test(test_tiles_of_long_rows),
                                       cmocka_unit_test(test_processor),
                                       cmocka_unit_test(test_widths),
                                       cmocka_unit_test(test_in_turn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
