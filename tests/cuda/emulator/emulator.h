/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulated devices' inside: what its files know of each other. tests/cuda/README.md says what it is.
 */
#ifndef PP_EMULATOR_EMULATOR_H
#define PP_EMULATOR_EMULATOR_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "grid.h"

enum { PP_EMU_DEVICES = 8, PP_EMU_SMS = 132, PP_EMU_SM_BLOCKS = 32 /* on one at once */ };

/* ---- settings.c: the environment, injected failures, errors, what is counted ---- */

/* Events that streams of a green context record: all; those made while it was current; those made while none was. */
enum pp_emu_own_events { PP_EMU_ALL_EVENTS, PP_EMU_OWN_EVENTS, PP_EMU_PRIMARY_EVENTS };

struct pp_emu_settings {
    bool driver, peers;
    int devices;
    uint64_t memory_bytes;    /* of each device */
    int capability;           /* compute capability: ten times the major and the minor number */
    int shared_bytes;         /* that a block may have */
    int64_t kernel_ns;        /* every launch takes at least so long */
    int64_t jitter_us;        /* every operation starts late by a random time up to this */
    unsigned seed;            /* of these times */
    bool reversed;            /* blocks and threads run from the last to the first */
    int64_t cold_ns;          /* the clock is slow until kernels have watched it so long */
    int64_t first_offer_us;   /* products by the heuristic's first offer take so much longer */
    bool unsteady;            /* the last offer adds in another order every time */
    uint32_t least_alignment; /* of operands of products, for which there are algorithms */
    uint32_t valid_alignment; /* of those; cublasLt takes less for a mistake */
    bool numbered;            /* devices have names of their own */
    uint64_t queue;           /* operations that a stream has room for */
    bool partitions;          /* green contexts keep to their multiprocessors */
    int own_events;           /* which events their streams record, enum pp_emu_own_events */
    bool strict;
    bool mute; /* NCCL does not notice that a peer is dead */
    const char *stats; /* a file, or NULL */
};
const struct pp_emu_settings *pp_emu_settings(void);

/* Every function of the runtime begins with it: no driver or device, an earlier fault, an injected failure. */
cudaError_t pp_emu_enter(const char *function);
#define PP_EMU_ENTER()                                                                                                 \
    do {                                                                                                               \
        const cudaError_t entered = pp_emu_enter(__func__);                                                            \
        if (entered != cudaSuccess) return pp_emu_error(entered);                                                      \
    } while (0)
/* Notes it for cudaGetLastError and returns it. cudaErrorNotReady too: who does not clear it finds it after the next
 * launch. */
cudaError_t pp_emu_error(cudaError_t error);
/* Is it this function's turn to fail? The code that PP_EMULATE_FAIL gives it (`usual` if none) or 0. */
int pp_emu_injected(const char *function, int usual);
/* A complaint that fails the program under PP_EMULATE_STRICT's eyes: one line on stderr, and in the file that
 * PP_EMULATE_COMPLAINTS names. */
void pp_emu_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

enum pp_emu_count {
    PP_EMU_LAUNCHES,
    PP_EMU_PRODUCTS,
    PP_EMU_COPIES,
    PP_EMU_FILLS,
    PP_EMU_HOST_WAITS, /* calls that wait for the device, if it still has work or not: that is chance */
    PP_EMU_HOST_FUNCTIONS,
    PP_EMU_FULL_QUEUES, /* launches that had to wait for room in their stream */
    PP_EMU_DEVICE_ALLOCATIONS,
    PP_EMU_HOST_ALLOCATIONS,
    PP_EMU_STREAMS,
    PP_EMU_EVENTS,
    PP_EMU_COLLECTIVES, /* of NCCL */
    PP_EMU_LIVE_DEVICE_BYTES,
    PP_EMU_LIVE_HOST_BYTES,
    PP_EMU_LIVE_STREAMS,
    PP_EMU_LIVE_EVENTS,
    PP_EMU_LIVE_COMMUNICATORS,
    PP_EMU_LIVE_CONTEXTS, /* green ones */
    PP_EMU_COMPLAINTS,
    PP_EMU_COUNTS
};
void pp_emu_count(enum pp_emu_count what, int64_t by);
/* Kernels, products, copies and fills that were put into streams so far, for tests (parity_queue.c). */
int64_t pp_emu_queued(void);

/* ---- locks and order ---- */

/* ThreadSanitizer must see the order that CUDA promises, and none that the emulator's own locks make. These files are
 * built without its eyes; locks are hidden from it, promises are said. */
void pp_emu_lock(pthread_mutex_t *mutex);
void pp_emu_unlock(pthread_mutex_t *mutex);
void pp_emu_hide(void); /* order that is none, until ... */
void pp_emu_show(void);
void pp_emu_promise(void *address); /* what this thread did comes before ... */
void pp_emu_rely(void *address);    /* ... what this one does from here on */

/* Makes and frees what others use under its lock. Zeroed; never NULL. */
void *pp_emu_new(size_t bytes);
void pp_emu_prepare(pthread_mutex_t *mutex, pthread_cond_t *condition);
void pp_emu_retire(void *memory, pthread_mutex_t *mutex, pthread_cond_t *condition);

/* ---- stream.c ---- */

struct pp_emu_pool; /* sms.c */

struct pp_emu_op {
    struct pp_emu_op *next;
    /* Runs in the stream's thread, then frees itself. dead: the device failed, do only what others wait for. */
    void (*run)(struct pp_emu_op *op, cudaStream_t stream, bool dead);
};

struct CUstream_st {
    struct CUstream_st *next; /* all live ones */
    unsigned number;          /* streams that the process had made before */
    int device;
    unsigned flags;
    CUgreenCtx green;
    struct pp_emu_pool *pool; /* of the green context; NULL: all of the device */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct pp_emu_op *head, **tail;
    uint64_t queued, finished;
    int64_t finished_ns; /* when the last one did; the stream's own */
    bool closing;
};

/* The stream that a handle means for the calling thread; NULL if there is none such. */
cudaStream_t pp_emu_stream(cudaStream_t handle);
/* Checked, listed and counted as cudaStreamCreate does. */
cudaError_t pp_emu_stream_open(int device, unsigned flags, CUgreenCtx green, cudaStream_t *out);
bool pp_emu_has_streams(CUgreenCtx green);
void pp_emu_enqueue(cudaStream_t stream, struct pp_emu_op *op);
/* Blocks until all that is queued has run. */
void pp_emu_drain(cudaStream_t stream);
void pp_emu_drain_device(int device);

/* ---- event.c ---- */

struct pp_emu_record; /* one call of cudaEventRecord */
struct pp_emu_record *pp_emu_record_new(void);
void pp_emu_record_release(struct pp_emu_record *record);
void pp_emu_record_wait(struct pp_emu_record *record);
/* Operations that reach the record, and that wait for it. */
struct pp_emu_op *pp_emu_record_op(struct pp_emu_record *record);
struct pp_emu_op *pp_emu_wait_op(struct pp_emu_record *record);

/* ---- memory.c ---- */

enum pp_emu_memory { PP_EMU_PAGEABLE, PP_EMU_PINNED, PP_EMU_DEVICE };
struct pp_emu_range {
    char *start;
    size_t bytes;
    enum pp_emu_memory kind;
    int device;
};
/* False if the bytes begin in an allocation and leave it. range->kind says what they are. */
bool pp_emu_find(const void *p, size_t bytes, struct pp_emu_range *range);
/* Are these bytes device memory? Complains with the name of the function and of its operand if not. */
bool pp_emu_is_device(const char *function, const char *operand, const void *p, size_t bytes);
uint64_t pp_emu_used_bytes(int device);

/* What a look at work that may have ended says. A host that spins until it has would take the processor from the GPU,
 * which is here on it: whoever has looked in vain for a while sleeps a moment. */
cudaError_t pp_emu_looked(bool done);

/* ---- device.c ---- */

int pp_emu_current(void); /* device of the calling thread */
/* A failed device answers every call with its fault. */
cudaError_t pp_emu_fault(int device);
void pp_emu_set_fault(int device, cudaError_t error);

/* ---- sms.c: where blocks of kernels that watch the clock run, and when ---- */

/* The multiprocessors of a green context, or of a device. */
struct pp_emu_pool *pp_emu_pool_take(int sms);
void pp_emu_pool_return(struct pp_emu_pool *pool);
/* Blocks of ns each go where the stream's work may run, from `start` on: when does the last one end? */
int64_t pp_emu_occupy(cudaStream_t stream, int64_t start, uint64_t blocks, int64_t ns);

/* ---- driver.c ---- */

struct pp_emu_pool *pp_emu_green_pool(CUgreenCtx green);

/* The green context that the calling thread's streams are made in; NULL: none. */
CUgreenCtx pp_emu_current_green(void);
void pp_emu_reset_green(void); /* cudaSetDevice leaves it */

int64_t pp_emu_now_ns(void);

/* ---- nccl.c ---- */

/* Complains where a first exchange of the process is under way: the real call may wait for it, and the exchange's other
 * end for what this thread would do next. */
void pp_emu_allocates(const char *function);

#endif
