/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/calls/bf16.h"
#include "kernels/cpu/cpu.h"
#include "queue_device_inside.h"

pthread_mutex_t queued_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local struct pp_device *current;

void queued_use(struct pp_device *device) { current = device; }

void queued_nap(void) { nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL); }

/* --- queues --- */

static void release_point(struct point *point)
{
    if (!point || --point->references > 0) return;
    pthread_cond_destroy(&point->moved);
    free(point);
}

static void delay(struct pp_queue *queue)
{
    const int most_us = queue->device->settings.most_delay_us;
    queue->random = queue->random * 6364136223846793005u + 1442695040888963407u;
    if (most_us == 0 || (queue->random >> 40) % 3) return;
    const int64_t us = (int64_t)((queue->random >> 33) % (uint64_t)most_us);
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static double part_of(const struct work *work, int part, int64_t i)
{
    const void *from = work->parts[part];
    if (work->type == PP_SUM_DOUBLE) return ((const double *)from)[i];
    return work->type == PP_SUM_FLOAT ? ((const float *)from)[i] : pp_bf16_float(((const uint16_t *)from)[i]);
}

/* Doubles hold sums of two floats exactly enough: rounded once, they are those of floats. */
static double rounded(int type, double sum)
{
    if (type == PP_SUM_DOUBLE) return sum;
    return type == PP_SUM_FLOAT ? (float)sum : pp_bf16_float(pp_bf16((float)sum));
}

static void add_up(const struct work *work)
{
    for (int64_t i = 0; i < work->n; i++) {
        double sum = part_of(work, 0, i);
        for (int p = 1; p < work->nparts; p++) sum = rounded(work->type, sum + part_of(work, p, i));
        if (work->type == PP_SUM_DOUBLE)
            ((double *)work->to)[i] = sum;
        else if (work->type == PP_SUM_FLOAT)
            ((float *)work->to)[i] = (float)sum;
        else
            ((uint16_t *)work->to)[i] = pp_bf16((float)sum);
    }
}

static void clip(const struct work *work)
{
    const double *sums = work->parts[0];
    double sum = 0;
    for (int64_t i = 0; i < work->n; i++) sum += sums[i];
    const double factor = work->most / (sqrt(sum) + 1e-6);
    *(float *)work->to = factor > 1 ? 1.0f : (float)factor;
}

static void narrow(const struct work *work)
{
    for (int64_t i = 0; i < work->n; i++) ((uint16_t *)work->to)[i] = pp_bf16(((const float *)work->parts[0])[i]);
}

static void widen(const struct work *work)
{
    for (int64_t i = 0; i < work->n; i++) ((float *)work->to)[i] = pp_bf16_float(((const uint16_t *)work->parts[0])[i]);
}

static void copy_all(const struct pp_strided *c)
{
    for (int64_t i = 0; i < c->n; i++)
        memcpy((char *)c->to + i * c->to_stride, (const char *)c->from + i * c->from_stride, (size_t)c->bytes);
}

static void compute(struct pp_queue *queue, struct work *work)
{
    struct pp_frame *frame = &work->frame;
    if (frame->clip) frame->clip_factor = *frame->clip;
    frame->clip = NULL;
    if (pp_backend_cpu.run(queue->device->cpu, &work->program, frame, NULL, NULL) != PP_OK) abort();
}

/* All that may take long, without the lock. */
static void perform(struct pp_queue *queue, struct work *work)
{
    delay(queue);
    if (work->kind == WORK_COPY) memcpy(work->to, work->parts[0], (size_t)work->n);
    if (work->kind == WORK_COPIES) copy_all(&work->copies);
    if (work->kind == WORK_RUN) compute(queue, work);
    if (work->kind == WORK_SUM) add_up(work);
    if (work->kind == WORK_CLIP) clip(work);
    if (work->kind == WORK_NARROW) narrow(work);
    if (work->kind == WORK_WIDEN) widen(work);
}

/* With the lock. */
static void finish(struct pp_queue *queue, struct work *work)
{
    struct pp_device *device = queue->device;
    while (work->kind == WORK_WAIT && !work->point->reached) pthread_cond_wait(&work->point->moved, &queued_lock);
    if (work->kind == WORK_RECORD) {
        work->point->ns = pp_now_ns();
        work->point->reached = true;
        pthread_cond_broadcast(&work->point->moved);
    }
    if (work->kind == WORK_RUN && ++device->runs == device->settings.fail_run &&
        device->worker == device->settings.fail_worker && !device->settings.at_once)
        device->failed = true;
    release_point(work->point);
}

static void *work_through(void *arg)
{
    struct pp_queue *queue = arg;
    pthread_mutex_lock(&queued_lock);
    for (;;) {
        while (!queue->first && !queue->stop) pthread_cond_wait(&queue->moved, &queued_lock);
        struct work *work = queue->first;
        if (!work) break;
        queue->busy = true;
        const bool skip = queue->device->failed;
        if (work->kind != WORK_WAIT && work->kind != WORK_RECORD && !skip) {
            pthread_mutex_unlock(&queued_lock);
            perform(queue, work);
            pthread_mutex_lock(&queued_lock);
        }
        finish(queue, work);
        queue->first = work->next;
        queue->busy = false;
        free(work);
        if (!queue->first) pthread_cond_broadcast(&queue->moved);
    }
    pthread_mutex_unlock(&queued_lock);
    return NULL;
}

pp_status queued_usable(struct pp_device *device, const struct pp_queue *queue)
{
    if (current != device) return pp_fail(PP_INTERNAL, "queued device: another device is the thread's (use())");
    if (queue && queue->device != device) return pp_fail(PP_INTERNAL, "queued device: the queue is another device's");
    pthread_mutex_lock(&queued_lock);
    const bool failed = device->failed;
    pthread_mutex_unlock(&queued_lock);
    return failed ? pp_fail(PP_IO, "queued device of worker %d: the test's failure", device->worker) : PP_OK;
}

pp_status queued_put(struct pp_queue *queue, const struct work *work)
{
    struct work *copy = malloc(sizeof *copy);
    if (!copy) return pp_fail(PP_NOMEM, "queued device: no memory for work");
    *copy = *work;
    pthread_mutex_lock(&queued_lock);
    if (queue->first)
        queue->last->next = copy;
    else
        queue->first = copy;
    queue->last = copy;
    pthread_cond_broadcast(&queue->moved);
    pthread_mutex_unlock(&queued_lock);
    return PP_OK;
}

pp_status queued_queue_create(struct pp_device *device, struct pp_queue **out)
{
    static uint64_t number; /* queues delay in ways of their own */
    PP_TRY(queued_usable(device, NULL));
    PP_TRY(PP_NEW(out, 1));
    (*out)->device = device;
    pthread_cond_init(&(*out)->moved, NULL);
    (*out)->random = (device->settings.seed + __atomic_fetch_add(&number, 1, __ATOMIC_RELAXED)) * 0x9e3779b97f4a7c15u;
    return pthread_create(&(*out)->thread, NULL, work_through, *out) ? pp_fail(PP_NOMEM, "queued device: no thread")
                                                                     : PP_OK;
}

void queued_queue_destroy(struct pp_device *device, struct pp_queue *queue)
{
    (void)device;
    if (!queue) return;
    pthread_mutex_lock(&queued_lock);
    queue->stop = true;
    pthread_cond_broadcast(&queue->moved);
    pthread_mutex_unlock(&queued_lock);
    pthread_join(queue->thread, NULL);
    pthread_cond_destroy(&queue->moved);
    free(queue);
}

/* --- marks --- */

pp_status queued_mark_create(struct pp_device *device, bool timed, struct pp_mark **out)
{
    PP_TRY(queued_usable(device, NULL));
    PP_TRY(PP_NEW(out, 1));
    **out = (struct pp_mark){.device = device, .timed = timed};
    return PP_OK;
}

void queued_mark_destroy(struct pp_device *device, struct pp_mark *mark)
{
    (void)device;
    if (!mark) return;
    pthread_mutex_lock(&queued_lock);
    release_point(mark->point);
    pthread_mutex_unlock(&queued_lock);
    free(mark);
}

pp_status queued_record(struct pp_device *device, struct pp_queue *queue, struct pp_mark *mark)
{
    struct point *point;
    PP_TRY(queued_usable(device, queue));
    if (mark->device != device) return pp_fail(PP_INTERNAL, "queued device: the mark is another device's");
    PP_TRY(PP_NEW(&point, 1));
    point->references = 2;
    pthread_cond_init(&point->moved, NULL);
    pthread_mutex_lock(&queued_lock);
    release_point(mark->point);
    pthread_mutex_unlock(&queued_lock);
    mark->point = point; /* not under the lock: the host's threads must order queued_record() and wait() themselves */
    return queued_put(queue, &(struct work){.kind = WORK_RECORD, .point = point});
}

pp_status queued_wait(struct pp_device *device, struct pp_queue *queue, struct pp_mark *mark)
{
    PP_TRY(queued_usable(device, queue));
    struct point *point = mark->point;
    if (!point) return PP_OK;
    pthread_mutex_lock(&queued_lock);
    point->references++;
    pthread_mutex_unlock(&queued_lock);
    return queued_put(queue, &(struct work){.kind = WORK_WAIT, .point = point});
}

pp_status queued_reached(struct pp_device *device, struct pp_mark *mark, bool *out)
{
    PP_TRY(queued_usable(device, NULL));
    pthread_mutex_lock(&queued_lock);
    *out = !mark->point || mark->point->reached;
    pthread_mutex_unlock(&queued_lock);
    return PP_OK;
}

pp_status queued_elapsed(struct pp_device *device, struct pp_mark *from, struct pp_mark *to, int64_t *ns)
{
    bool both = from->timed && to->timed && from->device == device && to->device == device;
    PP_TRY(queued_usable(device, NULL));
    pthread_mutex_lock(&queued_lock);
    both = both && from->point && to->point && from->point->reached && to->point->reached;
    if (both) *ns = to->point->ns - from->point->ns;
    pthread_mutex_unlock(&queued_lock);
    return both ? PP_OK : pp_fail(PP_INTERNAL, "queued device: no time between these marks");
}
