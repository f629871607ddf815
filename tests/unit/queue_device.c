/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "kernels/cpu/cpu.h"
#include "queue_device_inside.h"

enum { MEMORIES = 4096 };

static struct {
    const char *from;
    int64_t bytes;
} memories[MEMORIES];
static struct queued_settings settings;

static int64_t most_ahead;
static atomic_llong copies_put;

void queued_set(const struct queued_settings *to)
{
    settings = to ? *to : (struct queued_settings){0};
    most_ahead = 0;
    atomic_store(&copies_put, 0);
}

int64_t queued_most_ahead(void) { return most_ahead; }
int64_t queued_copies(void) { return atomic_load(&copies_put); }

/* One more run() is in the compute queue. */
static void note_run(struct pp_device *device)
{
    pthread_mutex_lock(&queued_lock);
    const int64_t ahead = ++device->put - device->runs;
    if (ahead > most_ahead) most_ahead = ahead;
    pthread_mutex_unlock(&queued_lock);
}

/* --- memory that the device may touch --- */

static pp_status note(const void *memory, int64_t bytes)
{
    int i = 0;
    pthread_mutex_lock(&queued_lock);
    while (i < MEMORIES && memories[i].from) i++;
    if (i < MEMORIES) memories[i].from = memory, memories[i].bytes = bytes;
    pthread_mutex_unlock(&queued_lock);
    return i < MEMORIES ? PP_OK : pp_fail(PP_NOMEM, "queued device: more than %d pieces of memory", MEMORIES);
}

static void forget(const void *memory)
{
    pthread_mutex_lock(&queued_lock);
    for (int i = 0; i < MEMORIES; i++)
        if (memory && memories[i].from == memory) memories[i].from = NULL;
    pthread_mutex_unlock(&queued_lock);
}

/* Within one piece. NULL is no memory. */
static pp_status known(const void *memory, int64_t bytes, const char *what)
{
    bool found = memory == NULL;
    const char *at = memory;
    pthread_mutex_lock(&queued_lock);
    for (int i = 0; i < MEMORIES && !found; i++) {
        const char *from = memories[i].from;
        found = from && at >= from && at + bytes <= from + memories[i].bytes;
    }
    pthread_mutex_unlock(&queued_lock);
    return found ? PP_OK : pp_fail(PP_INTERNAL, "queued device: %s is not memory of a device, nor pinned memory", what);
}

static void *native(struct pp_queue *queue) { return queue; }

static struct pp_queue *compute_queue(struct pp_device *device) { return device->compute; }

/* --- work --- */

static pp_status host_alloc(struct pp_device *device, int64_t bytes, void **out)
{
    PP_TRY(queued_usable(device, NULL));
    PP_TRY(pp_alloc_bytes(out, 1, (size_t)(bytes > 0 ? bytes : 1)));
    return note(*out, bytes);
}

static void host_release(struct pp_device *device, void *memory)
{
    (void)device;
    forget(memory);
    free(memory);
}

static pp_status copy(struct pp_device *device, struct pp_queue *queue, void *to, const void *from, int64_t bytes)
{
    PP_TRY(queued_usable(device, queue));
    PP_TRY(known(to, bytes, "the target of a copy"));
    PP_TRY(known(from, bytes, "the source of a copy"));
    atomic_fetch_add(&copies_put, 1);
    return queued_put(queue, &(struct work){.kind = WORK_COPY, .to = to, .parts = {from}, .n = bytes});
}

static pp_status copy_strided(struct pp_device *device, struct pp_queue *queue, const struct pp_strided *c)
{
    PP_TRY(queued_usable(device, queue));
    PP_TRY(known(c->to, (c->n - 1) * c->to_stride + c->bytes, "the target of copies"));
    PP_TRY(known(c->from, (c->n - 1) * c->from_stride + c->bytes, "the source of copies"));
    if (c->to_stride < c->bytes || c->from_stride < c->bytes)
        return pp_fail(PP_INTERNAL, "queued device: copies of %lld bytes overlap", (long long)c->bytes);
    atomic_fetch_add(&copies_put, 1);
    return queued_put(queue, &(struct work){.kind = WORK_COPIES, .copies = *c});
}

static pp_status prepare(struct pp_device *device, const struct pp_program *program)
{
    PP_TRY(queued_usable(device, NULL));
    if (device->nprograms == QUEUED_PROGRAMS)
        return pp_fail(PP_NOMEM, "queued device: more than %d programs", QUEUED_PROGRAMS);
    device->programs[device->nprograms++] = program;
    return PP_OK;
}

static int launches(struct pp_device *device, const struct pp_program *program)
{
    return program->ncalls * (device->settings.launches ? device->settings.launches : 1);
}

/* Do the workers of a rank meet in a call? Who is asked is so as on a GPU, in the thread that queues. */
static bool meets(const struct pp_call *call)
{
    const struct pp_join_work join = pp_call_join(call);
    return join.op != PP_JOIN_NONE;
}

/* Piece by piece: what lies between such sums. */
static pp_status put_program(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame)
{
    struct work work = {.kind = WORK_RUN, .program = *program, .frame = *frame};
    work.frame.join = NULL; /* the host's, whose thread runs ahead of what is queued */
    for (int first = 0, end; first < program->ncalls && !(frame->join && frame->join->failed); first = end + 1) {
        for (end = first; end < program->ncalls && !meets(&program->calls[end]);) end++;
        work.program.calls = program->calls + first;
        work.program.ncalls = end - first;
        note_run(device);
        PP_TRY(queued_put(device->compute, &work));
        if (end < program->ncalls) pp_call_meet(&program->calls[end], frame);
    }
    return PP_OK;
}

static pp_status run(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame)
{
    int i = 0;
    PP_TRY(queued_usable(device, NULL));
    while (i < device->nprograms && device->programs[i] != program) i++;
    if (i == device->nprograms) return pp_fail(PP_INTERNAL, "queued device: '%s' was not prepared", program->signature);
    for (i = 0; i < PP_MEM_REGIONS; i++) PP_TRY(known(frame->base[i], 0, "a region of a frame"));
    PP_TRY(known(frame->loss, sizeof *frame->loss, "a frame's loss"));
    PP_TRY(known(frame->sums, sizeof *frame->sums, "a frame's sums"));
    PP_TRY(known(frame->clip, sizeof *frame->clip, "a frame's clip"));
    if (device->settings.at_once && device->worker == device->settings.fail_worker) {
        pthread_mutex_lock(&queued_lock);
        device->failed = ++device->calls == device->settings.fail_run;
        pthread_mutex_unlock(&queued_lock);
        PP_TRY(queued_usable(device, NULL));
    }
    return put_program(device, program, frame);
}

static pp_status sum(struct pp_device *device, struct pp_queue *queue, void *to, const void *const *parts, int nparts,
                     int64_t elements, int type)
{
    const int64_t bytes = elements * pp_sum_bytes(type);
    struct work work = {.kind = WORK_SUM, .to = to, .nparts = nparts, .type = type, .n = elements};
    PP_TRY(queued_usable(device, queue));
    if (nparts < 1 || nparts > PP_SUM_PARTS) return pp_fail(PP_INTERNAL, "queued device: a sum of %d parts", nparts);
    PP_TRY(known(to, bytes, "a sum"));
    for (int i = 0; i < nparts; i++) PP_TRY(known(work.parts[i] = parts[i], bytes, "a part of a sum"));
    return queued_put(queue, &work);
}

static pp_status convert(struct pp_device *device, struct pp_queue *queue, const struct work *work, int64_t to_bytes,
                         int64_t from_bytes)
{
    PP_TRY(queued_usable(device, queue));
    PP_TRY(known(work->to, work->n * to_bytes, "what numbers are rounded to, or read as"));
    PP_TRY(known(work->parts[0], work->n * from_bytes, "numbers to round, or to read"));
    return queued_put(queue, work);
}

static pp_status narrow(struct pp_device *device, struct pp_queue *queue, uint16_t *to, const float *from, int64_t n)
{
    const struct work work = {.kind = WORK_NARROW, .to = to, .parts = {from}, .n = n};
    return convert(device, queue, &work, (int64_t)sizeof *to, (int64_t)sizeof *from);
}

static pp_status widen(struct pp_device *device, struct pp_queue *queue, float *to, const uint16_t *from, int64_t n)
{
    const struct work work = {.kind = WORK_WIDEN, .to = to, .parts = {from}, .n = n};
    return convert(device, queue, &work, (int64_t)sizeof *to, (int64_t)sizeof *from);
}

static pp_status clip_factor(struct pp_device *device, struct pp_queue *queue, const double *sums, int n, double most,
                             float *factor)
{
    PP_TRY(queued_usable(device, queue));
    PP_TRY(known(sums, n * (int64_t)sizeof *sums, "an array of sums"));
    PP_TRY(known(factor, sizeof *factor, "a clip factor"));
    return queued_put(queue, &(struct work){.kind = WORK_CLIP, .to = factor, .parts = {sums}, .n = n, .most = most});
}

/* Nothing runs before its end. */
static pp_status measure_begin(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame,
                               int slot, bool each)
{
    (void)program, (void)each;
    device->measured[slot] = *frame;
    return queued_usable(device, NULL);
}

static pp_status measure_end(struct pp_device *device, const struct pp_program *program, int slot,
                             struct pp_run_time *out, int64_t *kernel_ns)
{
    PP_TRY(queued_usable(device, NULL));
    pthread_mutex_lock(&queued_lock);
    while (device->compute->first || device->compute->busy) pthread_cond_wait(&device->compute->moved, &queued_lock);
    pthread_mutex_unlock(&queued_lock);
    const int64_t start = pp_now_ns();
    PP_TRY(pp_backend_cpu.run(device->cpu, program, &device->measured[slot], NULL, kernel_ns));
    out->device_ns = pp_now_ns() - start;
    out->host_ns = 1000 * (int64_t)program->ncalls;
    return PP_OK;
}

static pp_status probe(struct pp_device *device) { return queued_usable(device, NULL); }

static void push_range(const char *name) { (void)name; }

static void pop_range(void) {}

static pp_status use(struct pp_device *device)
{
    queued_use(device);
    return PP_OK;
}

/* --- the backend --- */

static atomic_int workers_told;

int queued_workers(void) { return atomic_load(&workers_told); }

static pp_status open_device(const struct pp_device_spec *spec, struct pp_device **out)
{
    PP_TRY(PP_NEW(out, 1));
    (*out)->worker = spec->worker;
    atomic_store(&workers_told, spec->workers);
    (*out)->settings = settings;
    queued_use(*out);
    PP_TRY(pp_backend_cpu.open(spec, &(*out)->cpu));
    return queued_queue_create(*out, &(*out)->compute);
}

static void close_device(struct pp_device *device)
{
    queued_queue_destroy(device, device->compute);
    if (device->cpu) pp_backend_cpu.close(device->cpu);
    queued_use(NULL);
    free(device);
}

static pp_status alloc(struct pp_device *device, int64_t bytes, void **out)
{
    PP_TRY(queued_usable(device, NULL));
    PP_TRY(pp_backend_cpu.alloc(device->cpu, bytes, out));
    return note(*out, bytes);
}

static void release(struct pp_device *device, void *memory, int64_t bytes)
{
    forget(memory);
    pp_backend_cpu.release(device->cpu, memory, bytes);
}

/* Beside all queues, as copies of the default stream beside streams that do not block. */
static pp_status transport(struct pp_device *device, void *to, const void *from, int64_t bytes)
{
    PP_TRY(queued_usable(device, NULL));
    memcpy(to, from, (size_t)bytes);
    return PP_OK;
}

static const char *describe(struct pp_device *device) { return pp_backend_cpu.describe(device->cpu); }

static int64_t reference_ns(struct pp_device *device) { return pp_backend_cpu.reference_ns(device->cpu); }

static const struct pp_queue_ops ops = {
    .use = use,
    .compute = compute_queue,
    .queue_create = queued_queue_create,
    .queue_destroy = queued_queue_destroy,
    .native = native,
    .mark_create = queued_mark_create,
    .mark_destroy = queued_mark_destroy,
    .record = queued_record,
    .wait = queued_wait,
    .reached = queued_reached,
    .elapsed = queued_elapsed,
    .host_alloc = host_alloc,
    .host_release = host_release,
    .copy = copy,
    .copy_strided = copy_strided,
    .prepare = prepare,
    .launches = launches,
    .run = run,
    .sum = sum,
    .narrow = narrow,
    .widen = widen,
    .clip_factor = clip_factor,
    .measure_begin = measure_begin,
    .measure_end = measure_end,
    .probe = probe,
    .push_range = push_range,
    .pop_range = pop_range,
};

const struct pp_backend pp_backend_queued = {
    .name = "queued",
    .summary = "the cpu's kernels in queues, for tests",
    .queue = &ops,
    .open = open_device,
    .close = close_device,
    .alloc = alloc,
    .release = release,
    .upload = transport,
    .download = transport,
    .describe = describe,
    .reference_ns = reference_ns,
};
