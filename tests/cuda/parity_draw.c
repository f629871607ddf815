/* SPDX-License-Identifier: Apache-2.0
 *
 * Initial weights that the device makes, against those of the host: the same bits.
 */
#include "parity.h"

#include <Random123/philox.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernels/model.h"

enum { ELEMENTS = 5003, TENSOR = 3, AROUND = 8 /* elements before and behind, which must stay */, UNTOUCHED = 0x55 };
static const uint64_t seed = 0x123456789abcdef0;

enum { MOST_BYTES = 4 * (ELEMENTS + 2 * AROUND) };

struct expected {
    const float *values; /* [n] */
    char *there;         /* [MOST_BYTES] of the device */
    struct pp_draw draw;
    int shift; /* elements behind an aligned place */
};

static void check(const struct parity_device *d, const struct expected *e)
{
    static unsigned char got[MOST_BYTES], wanted[MOST_BYTES];
    const int size = e->draw.precision == PP_BF16 ? 2 : 4, at = AROUND + e->shift;
    bool drawn = false;
    memset(wanted, UNTOUCHED, sizeof wanted);
    for (int64_t i = 0; i < e->draw.n; i++) {
        const uint16_t rounded = parity_to_bf16(e->values[i]);
        memcpy(wanted + (at + i) * size, size == 2 ? (const void *)&rounded : (const void *)&e->values[i],
               (size_t)size);
    }
    memset(got, UNTOUCHED, sizeof got);
    PARITY_OK(d->backend->upload(d->device, e->there, got, sizeof got));
    PARITY_OK(d->backend->draw(d->device, &e->draw, e->there + (int64_t)at * size, &drawn));
    PARITY_OK(d->backend->download(d->device, got, e->there, sizeof got));
    assert_true(drawn);
    for (size_t i = 0; i < sizeof got; i++)
        if (got[i] != wanted[i])
            fail_msg("init %d, precision %d: %lld elements from %lld on, shift %d: byte %zu is %#x, not %#x",
                     e->draw.init, e->draw.precision, (long long)e->draw.n, (long long)e->draw.first, e->shift,
                     i - (size_t)(at * size), got[i], wanted[i]);
}

/* Whole tensors, and parts that begin and end within quads. */
static void check_parts(const struct parity_device *d, struct expected e, const float *all)
{
    const int64_t parts[][2] = {{0, ELEMENTS}, {0, 4096},         {0, 1}, {1, 2}, {2, 1}, {3, 2}, {5, 3}, {8, 2000},
                                {7, 4001},     {ELEMENTS - 2, 2}, {4, 0}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        e.draw.first = parts[i][0];
        e.draw.n = parts[i][1];
        e.values = all + e.draw.first;
        for (e.shift = 0; e.shift < 2; e.shift++) check(d, &e);
    }
}

/* A part that no host memory is for, where the quads' numbers have more than 32 bits. */
static void check_far(const struct parity_device *d, struct expected e)
{
    float values[8];
    e.draw.first = ((int64_t)5 << 34) + 3;
    e.draw.n = sizeof values / sizeof *values;
    for (int64_t i = 0; i < e.draw.n; i++) {
        const int64_t quad = (e.draw.first + i) / 4;
        const philox4x32_ctr_t counter = {{(uint32_t)quad, (uint32_t)(quad >> 32), TENSOR, UINT32_MAX}};
        const philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
        const philox4x32_ctr_t random = philox4x32(counter, key);
        values[i] = (float)(e.draw.bound * ((random.v[(e.draw.first + i) % 4] >> 8) * 0x1p-23 - 1));
    }
    e.values = values;
    check(d, &e);
}

/* A bound that is a power of two would hide how the product is rounded. */
void parity_draw(void **state)
{
    static float all[ELEMENTS];
    struct pp_tensor tensors[TENSOR + 1] = {[TENSOR] = {.elements = ELEMENTS}};
    const struct pp_model model = {.tensors = tensors, .ntensors = TENSOR + 1};
    const double bounds[] = {0.1, 0.034020690871988585, 1};
    (void)state;
    for (int precision = PP_FP32; precision <= PP_BF16; precision += PP_BF16 - PP_FP32) {
        const struct parity_device *d = &parity_devices[precision];
        char *there;
        PARITY_OK(d->backend->alloc(d->device, MOST_BYTES, (void **)&there));
        for (int i = 0; i < 3 * (PP_INIT_UNIFORM + 1); i++) {
            struct pp_tensor *t = &tensors[TENSOR];
            t->init = i / 3;
            t->bound = bounds[i % 3];
            pp_model_init_tensor(&model, TENSOR, seed, all);
            const struct expected e = {
                .there = there,
                .draw = {.init = t->init, .bound = t->bound, .tensor = TENSOR, .seed = seed, .precision = precision}};
            check_parts(d, e, all);
            if (t->init == PP_INIT_UNIFORM) check_far(d, e);
        }
        bool drawn = true;
        PARITY_OK(d->backend->draw(d->device, &(struct pp_draw){.init = PP_INIT_NORMAL, .n = 1}, there, &drawn));
        d->backend->release(d->device, there, MOST_BYTES);
        assert_false(drawn);
    }
}
