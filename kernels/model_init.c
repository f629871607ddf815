/* SPDX-License-Identifier: Apache-2.0
 *
 * Initial weights, from a counter-based generator keyed by (tensor, element): so threads can share a tensor.
 */
#include <Random123/philox.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>

#include "kernels/model.h"

/* Fourth counter word of initial weights; dropout sites, which stand there otherwise, are small numbers. */
static const uint32_t init_site = UINT32_MAX;

enum { QUAD = 4, MOST_THREADS = 64, THREAD_ELEMENTS = 1 << 18 /* a multiple of QUAD; less is not worth a thread */ };

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

/* Elements first .. end-1 of a tensor; first is a multiple of QUAD. */
struct part {
    const struct pp_tensor *tensor;
    int index;
    uint64_t seed;
    int64_t first, end;
    float *out; /* the tensor's */
};

static void *fill(void *arg)
{
    const struct part *p = arg;
    const struct pp_tensor *t = p->tensor;
    bool constant = t->init == PP_INIT_ZERO || t->init == PP_INIT_ONE;
    for (int64_t i = p->first; i < p->end && constant; i++) p->out[i] = t->init == PP_INIT_ONE;
    for (int64_t i = p->first; i < p->end && !constant; i += QUAD) {
        float four[QUAD];
        philox4x32_ctr_t random = random_quad(p->index, p->seed, i / QUAD);
        if (t->init == PP_INIT_UNIFORM)
            uniform_quad(random, t->bound, four);
        else
            normal_quad(random, t->bound, four);
        for (int k = 0; k < QUAD && i + k < p->end; k++) p->out[i + k] = four[k];
    }
    return NULL;
}

/* Of the calling thread: a worker that is tied to a core starts no others. */
static int usable_cores(void)
{
    cpu_set_t usable;
    return sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : 1;
}

void pp_model_init_tensor(const struct pp_model *model, int tensor, uint64_t seed, float *out)
{
    const struct pp_tensor *t = &model->tensors[tensor];
    struct part part[MOST_THREADS];
    pthread_t thread[MOST_THREADS];
    bool started[MOST_THREADS] = {false};
    int64_t n = t->elements / THREAD_ELEMENTS;
    int cores = n > 1 ? usable_cores() : 1;
    if (n > cores) n = cores;
    if (n > MOST_THREADS) n = MOST_THREADS;
    if (n < 1) n = 1;
    int64_t each = (t->elements / n + QUAD - 1) / QUAD * QUAD;
    for (int i = 0; i < n; i++) {
        part[i] = (struct part){t, tensor, seed, i * each, i + 1 < n ? (i + 1) * each : t->elements, out};
        started[i] = i > 0 && pthread_create(&thread[i], NULL, fill, &part[i]) == 0;
    }
    for (int i = 0; i < n; i++)
        if (!started[i]) fill(&part[i]);
    for (int i = 0; i < n; i++)
        if (started[i]) pthread_join(thread[i], NULL);
}
