/* SPDX-License-Identifier: Apache-2.0
 *
 * Races: two threads of a launch at one place in memory, one of which writes, and nothing between them that orders
 * memory. Results need not show them here, where blocks and threads run one after another: each access is looked up.
 *
 * Kernels that are compiled with -fsanitize=thread call this in place of ThreadSanitizer's runtime. Threads of a block
 * are ordered by __syncthreads, those of a warp by __syncwarp as well, but not by shuffles and votes; blocks of a
 * launch by nothing. An asynchronous copy may write at any time from its start to the wait for it, and is looked at at
 * both.
 */
#include "race.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "emulator.h"

enum {
    PLACE_BYTES = 2, /* the smallest element but for codes of FP8 */
    PLACES_LOG = 23, /* that a launch may touch */
    MOST_STEPS = 256,
    STACK_BYTES = 128 << 10, /* of a thread of a kernel */
    VARIABLES = 8,
    COMPLAINTS = 20,
    NOBODY = -1
};

/* Who was there. turn: barriers that the thread had passed; code: from pp_emu_races() on. */
struct visit {
    int block, code;
    uint16_t thread, warp_turn;
    unsigned turn;
};

/* split: one of its bytes has been visited by itself; then this place is that of the first byte, and another one, at
 * ~at, that of the second. */
struct place {
    uintptr_t at;
    unsigned launch; /* else it is empty */
    bool split;
    struct visit written, read[2];
};

struct variable {
    const char *at;
    int bytes;
};

/* What a thread of the host runs. */
static _Thread_local struct watch {
    unsigned launch; /* 0: none yet */
    const char *kernel, *shared;
    int block, variables;
    unsigned turn[PP_EMU_BLOCK_THREADS];
    uint16_t warp_turn[PP_EMU_BLOCK_THREADS];
    struct variable variable[VARIABLES];
    struct place *places;
} * watch;

static atomic_int found;

extern __thread uint3 threadIdx, blockIdx, blockDim, gridDim;

int pp_emu_races(void) { return atomic_load(&found); }

static int thread_number(void) { return (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)); }

static struct watch *get_watch(void)
{
    if (watch) return watch;
    const size_t bytes = sizeof(struct place) << PLACES_LOG;
    watch = calloc(1, sizeof(*watch));
    void *places = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!watch || places == MAP_FAILED) {
        perror("emulator: memory for races");
        abort();
    }
    watch->places = places;
    return watch;
}

void pp_emu_race_start(unsigned launch, const char *kernel)
{
    struct watch *w = get_watch();
    const int block = (int)(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
    if (launch == w->launch && block == w->block) return;
    w->launch = launch;
    w->kernel = kernel;
    w->block = block;
    w->shared = pp_emu_shared();
    w->variables = 0;
    memset(w->turn, 0, sizeof(w->turn));
    memset(w->warp_turn, 0, sizeof(w->warp_turn));
}

void pp_emu_race_barrier(void)
{
    watch->turn[thread_number()]++;
    watch->warp_turn[thread_number()] = 0;
}

void pp_emu_race_warp(void) { watch->warp_turn[thread_number()]++; }

void pp_emu_race_variable(const void *p, int bytes)
{
    for (int i = 0; i < watch->variables; i++)
        if (watch->variable[i].at == p) return;
    if (watch->variables < VARIABLES) watch->variable[watch->variables++] = (struct variable){p, bytes};
}

static bool is_shared(const char *p)
{
    if (p >= watch->shared && p < watch->shared + PP_EMU_SHARED_MOST) return true;
    for (int i = 0; i < watch->variables; i++)
        if (p >= watch->variable[i].at && p < watch->variable[i].at + watch->variable[i].bytes) return true;
    return false;
}

static bool same_thread(const struct visit *a, const struct visit *b)
{
    return a->block == b->block && a->thread == b->thread;
}

static bool same_warp(const struct visit *a, const struct visit *b)
{
    return a->block == b->block && a->thread / PP_EMU_WARP == b->thread / PP_EMU_WARP;
}

/* Does nothing order them? Shared memory of another block is other memory. */
static bool meet(const struct visit *before, const struct visit *now, bool shared)
{
    if (before->block == NOBODY || same_thread(before, now)) return false;
    if (before->block != now->block) return !shared;
    if (before->turn != now->turn) return false;
    return !same_warp(before, now) || before->warp_turn == now->warp_turn;
}

static void report(const struct visit *before, const struct visit *now, bool wrote, bool writes, bool shared)
{
    if (atomic_fetch_add(&found, 1) >= COMPLAINTS) return;
    pp_emu_complain("kernel %s: thread %d of block %d %s %s memory that thread %d of block %d %s, and nothing orders "
                    "them (code %+d, %+d)",
                    watch->kernel, now->thread, now->block, writes ? "writes" : "reads", shared ? "shared" : "global",
                    before->thread, before->block, wrote ? "wrote" : "read", before->code, now->code);
}

/* Two readers stay known: whoever writes there meets one of them at least, if they are of two warps or blocks. */
static void note_reader(struct visit *read, const struct visit *me, bool shared)
{
    for (int i = 0; i < 2; i++) {
        const bool gone = read[i].block == NOBODY || same_thread(&read[i], me) ||
                          (read[i].block != me->block ? shared : read[i].turn != me->turn);
        if (!gone) continue;
        read[i] = *me;
        return;
    }
    if (same_warp(&read[0], &read[1])) read[1] = *me;
}

static void visit(struct place *place, const struct visit *me, bool writes, bool shared)
{
    if (meet(&place->written, me, shared)) report(&place->written, me, true, writes, shared);
    if (!writes) {
        note_reader(place->read, me, shared);
        return;
    }
    if (meet(&place->read[0], me, shared))
        report(&place->read[0], me, false, true, shared);
    else if (meet(&place->read[1], me, shared))
        report(&place->read[1], me, false, true, shared);
    place->written = *me;
}

/* NULL, and a complaint: the launch has touched too much. */
static struct place *place_of(uintptr_t at)
{
    uint64_t hash = at * 0x9E3779B97F4A7C15u >> (64 - PLACES_LOG);
    for (int step = 0; step < MOST_STEPS; step++, hash = (hash + 1) % (1u << PLACES_LOG)) {
        struct place *place = &watch->places[hash];
        if (place->launch == watch->launch && place->at != at) continue;
        if (place->launch != watch->launch)
            *place =
                (struct place){at, watch->launch, false, {.block = NOBODY}, {{.block = NOBODY}, {.block = NOBODY}}};
        return place;
    }
    pp_emu_complain("kernel %s touches more memory than can be looked at", watch->kernel);
    return NULL;
}

/* Visits the bytes of a place from `first` up to `end`. */
static void visit_bytes(struct place *place, int first, int end, const struct visit *me, bool writes, bool shared)
{
    if (!place->split && end - first == PLACE_BYTES) {
        visit(place, me, writes, shared);
        return;
    }
    struct place *second = place_of(~place->at);
    if (!second) return;
    if (!place->split) {
        place->split = true;
        second->written = place->written;
        memcpy(second->read, place->read, sizeof(second->read));
    }
    if (first == 0) visit(place, me, writes, shared);
    if (end == PLACE_BYTES) visit(second, me, writes, shared);
}

static void look_up(const char *p, int bytes, bool writes, const void *code)
{
    if (!watch) return; /* the host's part */
    const bool shared = is_shared(p);
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (!shared && (uintptr_t)p - here + STACK_BYTES < 2 * STACK_BYTES) return; /* the thread's own */
    const int thread = thread_number();
    const struct visit me = {.block = watch->block,
                             .thread = (uint16_t)thread,
                             .turn = watch->turn[thread],
                             .warp_turn = watch->warp_turn[thread],
                             .code = (int)((const char *)code - (const char *)(uintptr_t)pp_emu_races)};
    const uintptr_t first = (uintptr_t)p, end = first + (unsigned)bytes;
    for (uintptr_t at = first / PLACE_BYTES; at * PLACE_BYTES < end; at++) {
        const uintptr_t begin = at * PLACE_BYTES;
        struct place *place = place_of(at);
        if (!place) return;
        visit_bytes(place, first > begin ? (int)(first - begin) : 0,
                    end - begin < PLACE_BYTES ? (int)(end - begin) : PLACE_BYTES, &me, writes, shared);
    }
}

void pp_emu_race_look(const void *p, int bytes, int writes) { look_up(p, bytes, writes, __builtin_return_address(0)); }

/* ---- what the compiler calls ---- */

#define ACCESS(name, bytes, writes)                                                                                    \
    void __tsan_##name(void *p);                                                                                       \
    void __tsan_##name(void *p) { look_up(p, bytes, writes, __builtin_return_address(0)); }
#define ACCESSES(bytes)                                                                                                \
    ACCESS(read##bytes, bytes, false)                                                                                  \
    ACCESS(write##bytes, bytes, true)                                                                                  \
    ACCESS(unaligned_read##bytes, bytes, false)                                                                        \
    ACCESS(unaligned_write##bytes, bytes, true)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

#define RANGE(name, writes)                                                                                            \
    void __tsan_##name##_range(void *p, unsigned long bytes);                                                          \
    void __tsan_##name##_range(void *p, unsigned long bytes)                                                           \
    {                                                                                                                  \
        look_up(p, (int)bytes, writes, __builtin_return_address(0));                                                   \
    }
RANGE(read, false)
RANGE(write, true)

void __tsan_init(void);
void __tsan_init(void) {}
void __tsan_func_entry(void *at);
void __tsan_func_entry(void *at) { (void)at; }
void __tsan_func_exit(void);
void __tsan_func_exit(void) {}

/* The emulator's own counters, and the gate. */
uint64_t __tsan_atomic64_fetch_add(volatile uint64_t *p, uint64_t by, int order);
uint64_t __tsan_atomic64_fetch_add(volatile uint64_t *p, uint64_t by, int order)
{
    (void)order;
    return __atomic_fetch_add(p, by, __ATOMIC_RELAXED);
}
uint32_t __tsan_atomic32_load(const volatile uint32_t *p, int order);
uint32_t __tsan_atomic32_load(const volatile uint32_t *p, int order)
{
    (void)order;
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
uint32_t __tsan_atomic32_fetch_add(volatile uint32_t *p, uint32_t by, int order);
uint32_t __tsan_atomic32_fetch_add(volatile uint32_t *p, uint32_t by, int order)
{
    (void)order;
    return __atomic_fetch_add(p, by, __ATOMIC_RELAXED);
}
uint8_t __tsan_atomic8_load(const volatile uint8_t *p, int order);
uint8_t __tsan_atomic8_load(const volatile uint8_t *p, int order)
{
    (void)order;
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
