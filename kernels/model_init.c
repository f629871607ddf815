/* SPDX-License-Identifier: Apache-2.0
 *
 * Initial weights, from a counter-based generator keyed by (tensor, element).
 */
#include <Random123/philox.h>
#include <math.h>

#include "kernels/model.h"

/* Fourth counter word of initial weights; dropout sites, which stand there otherwise, are small numbers. */
static const uint32_t init_site = UINT32_MAX;

enum { QUAD = 4 };

/* Four numbers for elements 4*quad .. 4*quad+3. */
static philox4x32_ctr_t random_quad(int tensor, uint64_t seed, int64_t quad)
{
    philox4x32_ctr_t counter = {{(uint32_t)quad, (uint32_t)(quad >> 32), (uint32_t)tensor, init_site}};
    philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    return philox4x32(counter, key);
}

static void uniform_quad(philox4x32_ctr_t random, double bound, float *out)
{
    for (int i = 0; i < QUAD; i++) out[i] = (float)(bound * ((random.v[i] >> 8) * 0x1p-23 - 1));
}

/* Box and Muller's transform of two pairs; the first of a pair lies in (0, 1]. */
static void normal_quad(philox4x32_ctr_t random, double deviation, float *out)
{
    for (int i = 0; i < QUAD; i += 2) {
        double radius = deviation * sqrt(-2 * log((random.v[i] + 1.0) * 0x1p-32));
        double angle = 2 * M_PI * 0x1p-32 * random.v[i + 1];
        out[i] = (float)(radius * cos(angle));
        out[i + 1] = (float)(radius * sin(angle));
    }
}

void pp_model_init_tensor(const struct pp_model *model, int tensor, uint64_t seed, float *out)
{
    const struct pp_tensor *t = &model->tensors[tensor];
    if (t->init == PP_INIT_ZERO || t->init == PP_INIT_ONE) {
        for (int64_t i = 0; i < t->elements; i++) out[i] = t->init == PP_INIT_ONE;
        return;
    }
    for (int64_t i = 0; i < t->elements; i += QUAD) {
        float four[QUAD];
        philox4x32_ctr_t random = random_quad(tensor, seed, i / QUAD);
        if (t->init == PP_INIT_UNIFORM)
            uniform_quad(random, t->bound, four);
        else
            normal_quad(random, t->bound, four);
        for (int k = 0; k < QUAD && i + k < t->elements; k++) out[i + k] = four[k];
    }
}
