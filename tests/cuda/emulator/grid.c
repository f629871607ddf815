/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads start one after another on one stack; only a thread that must wait for others keeps its stack, and the next
 * one starts on another. A kernel without barriers therefore costs a call per thread.
 */
#include "grid.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "emulator.h"
#include "fiber.h"

enum {
    STACK_BYTES = 128 << 10,
    GUARD_BYTES = 4096,
    PLACE_BYTES = STACK_BYTES + GUARD_BYTES,
    CANARY_BYTES = 256,
    POISON = 0xff, /* NaN as float, double and bfloat16 */
    CANARY = 0xa5,
    COPIES = 56,   /* that a thread may have under way */
    VARIABLES = 8, /* that a kernel declares */
    WARPS = PP_EMU_BLOCK_THREADS / PP_EMU_WARP
};

enum wait { RUNS, AT_BARRIER, AT_WARP, ENDED };
enum warp_operation { SYNC = 1, SHUFFLE, BALLOT };

struct thread {
    struct pp_fiber fiber;
    uint3 index;
    enum wait wait;
    /* at a warp operation */
    enum warp_operation operation;
    unsigned mask;
    int source;
    uint64_t in, out;
    int meetings, first_copy, copies; /* under way: [first_copy .. copies - 1] */
};

struct warp {
    unsigned waiting, ended; /* lanes; those that do not exist have ended */
};

struct variable {
    const void *site;
    char *memory;
};

struct runner {
    struct pp_fiber home, fresh;
    struct thread thread[PP_EMU_BLOCK_THREADS];
    struct pp_emu_copy copy[PP_EMU_BLOCK_THREADS][COPIES];
    char shown[2][PP_EMU_BLOCK_THREADS * PP_EMU_SHOWN]; /* a lane is one meeting ahead of another at most */
    struct warp warp[WARPS];
    char *region;                      /* of all stacks, each above a page that nobody may touch */
    void *stack[PP_EMU_BLOCK_THREADS]; /* free ones */
    int stacks, made;
    const struct pp_emu_kernel *kernel;
    int threads, started, ended, at_barrier, running;
    bool reversed;
    uint16_t ready[PP_EMU_BLOCK_THREADS]; /* ring: each thread is in it once at most */
    unsigned first_ready, end_ready;
    char *shared;
    struct variable variable[VARIABLES]; /* that the block has met so far */
    _Alignas(16) char variables[PP_EMU_SHARED_DEFAULT];
    int nvariables;
    size_t variables_bytes;
    char fault[160];
};

__thread uint3 threadIdx, blockIdx, blockDim, gridDim;
static _Thread_local struct runner *runner;

static void complain(struct runner *r, const char *format, int a, int b)
{
    if (!*r->fault) snprintf(r->fault, sizeof(r->fault), format, a, b);
}

static void *take_stack(struct runner *r)
{
    if (r->stacks) return r->stack[--r->stacks];
    char *stack = r->region + (size_t)r->made++ * PLACE_BYTES + GUARD_BYTES;
    if (mprotect(stack, STACK_BYTES, PROT_READ | PROT_WRITE)) {
        perror("emulator: stack of a thread");
        abort();
    }
    return stack;
}

static void set_index(struct runner *r, int t)
{
    r->running = t;
    threadIdx = r->thread[t].index;
}

static void make_ready(struct runner *r, int t)
{
    r->thread[t].wait = RUNS;
    r->ready[r->end_ready++ % PP_EMU_BLOCK_THREADS] = (uint16_t)t;
}

/* A barrier waits for all threads that have not ended. */
static void release_barrier(struct runner *r)
{
    if (!r->at_barrier || r->at_barrier + r->ended < r->threads) return;
    r->at_barrier = 0;
    for (int i = 0; i < r->threads; i++) {
        const int t = r->reversed ? r->threads - 1 - i : i;
        if (r->thread[t].wait == AT_BARRIER) make_ready(r, t);
    }
}

static uint64_t shuffled(const struct warp *warp, const struct thread *lanes, unsigned mask, int source)
{
    if (source < 0 || source >= PP_EMU_WARP || !(mask & ~warp->ended & 1u << source)) return UINT64_MAX;
    return lanes[source].in;
}

/* Releases the lanes that wait with `mask`, if all of them are there. */
static void release_warp(struct runner *r, int w, unsigned mask)
{
    struct warp *warp = &r->warp[w];
    struct thread *lanes = &r->thread[w * PP_EMU_WARP];
    const unsigned there = mask & ~warp->ended;
    if (!there || there & ~warp->waiting) return;
    const int first = __builtin_ctz(there);
    uint64_t votes = 0;
    for (int l = first; l < PP_EMU_WARP; l++) {
        if (!(there >> l & 1)) continue;
        if (lanes[l].mask != mask) return;
        if (lanes[l].operation != lanes[first].operation)
            complain(r, "lanes %d and %d of a warp meet at different operations", first, l);
        votes |= lanes[l].in ? 1ull << l : 0;
    }
    for (int l = first; l < PP_EMU_WARP; l++) {
        if (!(there >> l & 1)) continue;
        lanes[l].out = lanes[l].operation == BALLOT ? votes : shuffled(warp, lanes, mask, lanes[l].source);
    }
    warp->waiting &= ~there;
    for (int l = first; l < PP_EMU_WARP; l++) {
        if (there >> l & 1) make_ready(r, w * PP_EMU_WARP + l);
    }
}

/* Ends a wait of others that the running thread's end completes. */
static void end_thread(struct runner *r)
{
    const int t = r->running, w = t / PP_EMU_WARP;
    if (r->thread[t].copies) complain(r, "thread %d ends with %d copies under way", t, r->thread[t].copies);
    r->thread[t].wait = ENDED;
    r->ended++;
    r->warp[w].ended |= 1u << t % PP_EMU_WARP;
    for (unsigned left = r->warp[w].waiting; left; left &= left - 1) {
        const int lane = __builtin_ctz(left);
        if (r->warp[w].waiting >> lane & 1) release_warp(r, w, r->thread[w * PP_EMU_WARP + lane].mask);
    }
    release_barrier(r);
}

static void thread_main(void);

/* The running thread leaves the processor: to one that is ready, else to a new one, else home. */
static void leave(struct runner *r, struct pp_fiber *from, bool dies)
{
    struct pp_fiber *to = &r->home;
    if (*r->fault) {
        /* nothing else runs any more */
    } else if (r->first_ready != r->end_ready) {
        const int t = r->ready[r->first_ready++ % PP_EMU_BLOCK_THREADS];
        set_index(r, t);
        to = &r->thread[t].fiber;
    } else if (r->started < r->threads) {
        to = &r->fresh;
        to->stack = take_stack(r);
        to->stack_bytes = STACK_BYTES;
        pp_fiber_start(to, thread_main);
    }
    if (to != from) pp_fiber_switch(from, to, dies);
}

/* One stack's life: runs threads from start to end while no other thread can go on. */
static void thread_main(void)
{
    pp_fiber_entered();
    struct runner *r = runner;
    struct pp_fiber self = {.stack = r->fresh.stack, .stack_bytes = r->fresh.stack_bytes};
    while (r->started < r->threads && r->first_ready == r->end_ready && !*r->fault) {
        const int i = r->started++, t = r->reversed ? r->threads - 1 - i : i;
        r->thread[t].fiber = self;
        r->thread[t].index = (uint3){t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
        set_index(r, t);
        r->kernel->body(r->kernel->arguments);
        end_thread(r);
    }
    r->stack[r->stacks++] = self.stack;
    for (;;) leave(r, &self, true);
}

static void wait_here(struct runner *r, enum wait what)
{
    struct thread *me = &r->thread[r->running];
    me->wait = what;
    if (what == AT_BARRIER) {
        r->at_barrier++;
        release_barrier(r);
    } else {
        const int w = r->running / PP_EMU_WARP;
        r->warp[w].waiting |= 1u << r->running % PP_EMU_WARP;
        release_warp(r, w, me->mask);
    }
    leave(r, &me->fiber, false);
}

static uint64_t at_warp(enum warp_operation operation, unsigned mask, uint64_t in, int source)
{
    struct runner *r = runner;
    struct thread *me = &r->thread[r->running];
    if (!(mask >> r->running % PP_EMU_WARP & 1))
        complain(r, "thread %d is not in its own mask 0x%x", r->running, (int)mask);
    me->operation = operation;
    me->mask = mask | 1u << r->running % PP_EMU_WARP;
    me->in = in;
    me->source = source;
    wait_here(r, AT_WARP);
    return me->out;
}

void pp_emu_syncthreads(void) { wait_here(runner, AT_BARRIER); }
void pp_emu_syncwarp(unsigned mask) { at_warp(SYNC, mask, 0, 0); }
uint64_t pp_emu_shuffle(unsigned mask, uint64_t value, int lane) { return at_warp(SHUFFLE, mask, value, lane); }
unsigned pp_emu_ballot(unsigned mask, int predicate) { return (unsigned)at_warp(BALLOT, mask, predicate != 0, 0); }
void *pp_emu_shared(void) { return runner->shared; }

void *pp_emu_variable(const void *site, size_t bytes)
{
    struct runner *r = runner;
    int i = 0;
    while (i < r->nvariables && r->variable[i].site != site) i++;
    if (i < r->nvariables) return r->variable[i].memory;
    const size_t room = (bytes + 15) & ~(size_t)15;
    if (i == VARIABLES || r->variables_bytes + room > sizeof(r->variables)) abort(); /* nvcc would not compile it */
    r->variable[r->nvariables++] = (struct variable){site, r->variables + r->variables_bytes};
    r->variables_bytes += room;
    return memset(r->variable[i].memory, POISON, room);
}

const void *pp_emu_meet(const void *mine, size_t bytes)
{
    struct runner *r = runner;
    const int lane = r->running % PP_EMU_WARP, warp = r->running - lane;
    char *shown = r->shown[r->thread[r->running].meetings++ % 2] + warp * PP_EMU_SHOWN;
    memcpy(shown + lane * bytes, mine, bytes);
    pp_emu_syncwarp(~0u);
    return shown;
}

void pp_emu_check_aligned(const void *p, int bytes)
{
    if ((uintptr_t)p % (unsigned)bytes)
        complain(runner, "thread %d: address not aligned to %d bytes", runner->running, bytes);
}

int pp_emu_copy_put(const struct pp_emu_copy *copy)
{
    struct thread *me = &runner->thread[runner->running];
    if (runner->reversed) return 0;
    if (me->copies == COPIES)
        complain(runner, "thread %d has more than %d copies under way", runner->running, COPIES);
    else
        runner->copy[runner->running][me->copies++] = *copy;
    return 1;
}

int pp_emu_copy_get(struct pp_emu_copy *copy)
{
    struct thread *me = &runner->thread[runner->running];
    if (me->first_copy == me->copies) {
        me->first_copy = me->copies = 0;
        return 0;
    }
    *copy = runner->copy[runner->running][me->first_copy++];
    return 1;
}

static void poison(struct runner *r)
{
    memset(r->shared, POISON, r->kernel->shared_bytes);
    memset(r->shared + r->kernel->shared_bytes, CANARY, CANARY_BYTES);
}

static void diagnose(struct runner *r)
{
    int waits[2] = {-1, -1};
    for (int t = 0; t < r->threads; t++) {
        const enum wait w = r->thread[t].wait;
        if ((w == AT_BARRIER || w == AT_WARP) && waits[w - AT_BARRIER] < 0) waits[w - AT_BARRIER] = t;
    }
    if (waits[0] >= 0 && waits[1] >= 0)
        complain(r, "thread %d waits at __syncthreads, thread %d for its warp", waits[0], waits[1]);
    complain(r, "thread %d waits for lanes (mask 0x%x) that wait elsewhere", waits[1], (int)r->thread[waits[1]].mask);
}

/* b: in the order in which they run */
static bool run_block(struct runner *r, uint64_t b)
{
    const int n = r->threads;
    for (int t = 0; t < n; t++) {
        r->thread[t].wait = RUNS;
        r->thread[t].meetings = r->thread[t].first_copy = r->thread[t].copies = 0;
    }
    for (int w = 0; w * PP_EMU_WARP < n; w++) {
        const int lanes = n - w * PP_EMU_WARP;
        r->warp[w] = (struct warp){.ended = lanes >= PP_EMU_WARP ? 0 : ~0u << lanes};
    }
    r->started = r->ended = r->at_barrier = 0;
    r->first_ready = r->end_ready = 0;
    pp_emu_clock_block();
    r->variables_bytes = r->nvariables = 0;
    if (n > 1 || !b) poison(r); /* a lone thread shares with nobody, and there may be many blocks of it */
    leave(r, &r->home, false);
    if (r->ended < n && !*r->fault) diagnose(r);
    for (int i = 0; i < CANARY_BYTES; i++) {
        if (r->shared[r->kernel->shared_bytes + i] != (char)CANARY)
            complain(r, "wrote %d bytes behind its %d bytes of shared memory", i, (int)r->kernel->shared_bytes);
    }
    if (!*r->fault) return true;
    for (int i = 0; i < r->started; i++) { /* what waits never goes on: its stack is free */
        const int t = r->reversed ? n - 1 - i : i;
        if (r->thread[t].wait != ENDED) r->stack[r->stacks++] = r->thread[t].fiber.stack;
    }
    return false;
}

static struct runner *get_runner(void)
{
    if (runner) return runner;
    runner = calloc(1, sizeof(*runner));
    if (runner)
        runner->region = mmap(NULL, (size_t)PP_EMU_BLOCK_THREADS * PLACE_BYTES, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (!runner || runner->region == MAP_FAILED ||
        !(runner->shared = aligned_alloc(256, PP_EMU_SHARED_MOST + CANARY_BYTES))) {
        perror("emulator");
        abort();
    }
    runner->reversed = pp_emu_settings()->reversed;
    return runner;
}

void pp_emu_grid_end(void)
{
    if (!runner) return;
    pp_fiber_forget(runner->region, (size_t)runner->made * PLACE_BYTES);
    munmap(runner->region, (size_t)PP_EMU_BLOCK_THREADS * PLACE_BYTES);
    free(runner->shared);
    free(runner);
    runner = NULL;
}

int pp_emu_grid_run(const struct pp_emu_kernel *kernel, char *message, size_t size)
{
    struct runner *r = get_runner();
    r->kernel = kernel;
    *r->fault = '\0';
    blockDim = kernel->block;
    gridDim = kernel->grid;
    r->threads = (int)(blockDim.x * blockDim.y * blockDim.z);
    const uint64_t blocks = (uint64_t)gridDim.x * gridDim.y * gridDim.z;
    pp_emu_clock_grid(blocks);
    for (uint64_t i = 0; i < blocks; i++) {
        const uint64_t b = r->reversed ? blocks - 1 - i : i;
        blockIdx.x = (unsigned)(b % gridDim.x);
        blockIdx.y = (unsigned)(b / gridDim.x % gridDim.y);
        blockIdx.z = (unsigned)(b / gridDim.x / gridDim.y);
        if (run_block(r, i)) continue;
        snprintf(message, size, "kernel %s, block (%u, %u, %u): %s", kernel->name, blockIdx.x, blockIdx.y, blockIdx.z,
                 r->fault);
        return 0;
    }
    return 1;
}
