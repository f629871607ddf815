/* SPDX-License-Identifier: Apache-2.0
 *
 * Initial weights, from a counter-based generator keyed by (tensor, element): so threads can share a tensor.
 * kernels/cuda/draw.cu makes the same.
 */
#include <Random123/philox.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "core/base/affinity.h"
#include "core/model/slice.h"
#include "kernels/model.h"

enum { QUAD = 4, MOST_THREADS = 64, THREAD_ELEMENTS = 1 << 18 /* a multiple of QUAD; less is not worth a thread */ };

/* Four numbers for elements 4*quad .. 4*quad+3. */
static philox4x32_ctr_t random_quad(int tensor, uint64_t seed, int64_t quad)
{
    philox4x32_ctr_t counter = {{(uint32_t)quad, (uint32_t)(quad >> 32), (uint32_t)tensor, PP_INIT_SITE}};
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

/* Elements first .. end-1 of what is made: of the whole tensor, or of what one worker has of it. */
struct part {
    const struct pp_tensor *tensor;
    const struct pp_shape *shape; /* NULL: the whole */
    int index, member;
    uint64_t seed;
    int64_t first, end;
    float *out; /* element 0 */
};

/* Elements first .. first+n-1 of the whole tensor. */
static void draw(const struct part *p, int64_t first, int64_t n, float *out)
{
    const struct pp_tensor *t = p->tensor;
    const bool constant = t->init == PP_INIT_ZERO || t->init == PP_INIT_ONE;
    for (int64_t i = 0; i < n && constant; i++) out[i] = t->init == PP_INIT_ONE;
    for (int64_t i = 0; i < n && !constant;) {
        float four[QUAD];
        const philox4x32_ctr_t random = random_quad(p->index, p->seed, (first + i) / QUAD);
        if (t->init == PP_INIT_UNIFORM)
            uniform_quad(random, t->bound, four);
        else
            normal_quad(random, t->bound, four);
        for (int64_t k = (first + i) % QUAD; k < QUAD && i < n; k++) out[i++] = four[k];
    }
}

static void *fill(void *arg)
{
    const struct part *p = arg;
    for (int64_t i = p->first; i < p->end;) {
        struct pp_slice s = {i, p->end - i};
        if (p->shape) s = pp_tensor_slice(p->tensor, p->shape, p->member, i);
        if (s.n > p->end - i) s.n = p->end - i;
        if (s.whole < 0)
            memset(p->out + i, 0, (size_t)s.n * sizeof *p->out);
        else
            draw(p, s.whole, s.n, p->out + i);
        i += s.n;
    }
    return NULL;
}

/* `all` of a tensor's `elements`, by threads. A worker that is tied to a core starts no others. */
static void share(const struct part *all, int64_t elements)
{
    struct part part[MOST_THREADS];
    pthread_t thread[MOST_THREADS];
    bool started[MOST_THREADS] = {false};
    int64_t n = elements / THREAD_ELEMENTS;
    int cores = n > 1 ? pp_affinity_count() : 1;
    if (n > cores) n = cores;
    if (n > MOST_THREADS) n = MOST_THREADS;
    if (n < 1) n = 1;
    int64_t each = (elements / n + QUAD - 1) / QUAD * QUAD;
    for (int i = 0; i < n; i++) {
        part[i] = *all;
        part[i].first = i * each;
        part[i].end = i + 1 < n ? (i + 1) * each : elements;
        started[i] = i > 0 && pthread_create(&thread[i], NULL, fill, &part[i]) == 0;
    }
    for (int i = 0; i < n; i++)
        if (!started[i]) fill(&part[i]);
    for (int i = 0; i < n; i++)
        if (started[i]) pthread_join(thread[i], NULL);
}

void pp_model_init_tensor(const struct pp_model *model, int tensor, uint64_t seed, float *out)
{
    const struct pp_tensor *t = &model->tensors[tensor];
    share(&(struct part){.tensor = t, .index = tensor, .seed = seed, .out = out}, t->elements);
}

void pp_model_init_local(const struct pp_model *model, int tensor, uint64_t seed, int member, float *out)
{
    const struct pp_tensor *t = &model->tensors[tensor];
    const struct part all = {
        .tensor = t, .index = tensor, .shape = &model->shape, .member = member, .seed = seed, .out = out};
    share(&all, t->local_elements);
}
