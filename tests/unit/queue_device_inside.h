/* SPDX-License-Identifier: Apache-2.0
 *
 * Between queue_device.c (what the host calls) and queue_device_thread.c (queues and marks).
 */
#ifndef PP_TESTS_QUEUE_DEVICE_INSIDE_H
#define PP_TESTS_QUEUE_DEVICE_INSIDE_H

#include <pthread.h>

#include "queue_device.h"

enum { QUEUED_PROGRAMS = 4096 };

/* What one record() put into a queue. */
struct point {
    int references; /* of the mark, of the queue, of waits */
    bool reached;
    int64_t ns;
    pthread_cond_t moved; /* it was reached */
};

struct pp_mark {
    struct pp_device *device;
    bool timed;
    struct point *point; /* of the last record(); NULL: none yet */
};

enum work_kind { WORK_RECORD, WORK_WAIT, WORK_COPY, WORK_COPIES, WORK_RUN, WORK_SUM, WORK_CLIP,
                 WORK_NARROW, WORK_WIDEN };

struct work {
    struct work *next;
    enum work_kind kind;
    struct point *point;
    struct pp_program program; /* its calls are borrowed */
    struct pp_frame frame;
    void *to;
    const void *parts[PP_SUM_PARTS];
    int nparts, type;
    int64_t n; /* bytes or elements */
    double most;
    struct pp_strided copies;
};

struct pp_queue {
    struct pp_device *device;
    pthread_t thread;
    struct work *first, *last;
    bool busy, stop;
    pthread_cond_t moved; /* it got work, became idle, or shall stop */
    uint64_t random;
};

struct pp_device {
    struct pp_device *cpu;
    struct pp_queue *compute;
    int worker;
    int64_t runs, calls; /* run() that the queue has worked off; that were called, where one is to fail in the call */
    int64_t put;         /* run() that were put into the queue */
    bool failed;         /* for good, as a GPU's context */
    struct queued_settings settings;
    struct pp_frame measured[PP_MEASURED];
    const struct pp_program *programs[QUEUED_PROGRAMS]; /* prepared */
    int nprograms;
};

/* One lock for all of them; whom it concerns is woken, nobody else. */
extern pthread_mutex_t queued_lock;

/* The device is this thread's and works, the queue (unless NULL) is the device's. */
pp_status queued_usable(struct pp_device *device, const struct pp_queue *queue);
void queued_use(struct pp_device *device);
/* Appends a copy. */
pp_status queued_put(struct pp_queue *queue, const struct work *work);

pp_status queued_queue_create(struct pp_device *device, struct pp_queue **out);
void queued_queue_destroy(struct pp_device *device, struct pp_queue *queue);
pp_status queued_mark_create(struct pp_device *device, bool timed, struct pp_mark **out);
void queued_mark_destroy(struct pp_device *device, struct pp_mark *mark);
pp_status queued_record(struct pp_device *device, struct pp_queue *queue, struct pp_mark *mark);
pp_status queued_wait(struct pp_device *device, struct pp_queue *queue, struct pp_mark *mark);
pp_status queued_reached(struct pp_device *device, struct pp_mark *mark, bool *out);
pp_status queued_elapsed(struct pp_device *device, struct pp_mark *from, struct pp_mark *to, int64_t *ns);

#endif
