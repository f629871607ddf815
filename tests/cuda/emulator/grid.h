/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a kernel that was compiled for the host: blocks one after another, the threads of a block as coroutines of the
 * calling thread, so that barriers and shuffles are real.
 *
 * C here, C++ in kernel.h, which compiles the kernels; both see this file. PP_EMULATE_ORDER=reverse runs blocks and
 * threads from the last to the first: a result that changes with it lacks a barrier.
 */
#ifndef PP_EMULATOR_GRID_H
#define PP_EMULATOR_GRID_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PP_EMU_BLOCK_THREADS = 1024,
    PP_EMU_WARP = 32,
    PP_EMU_SHARED_DEFAULT = 48 << 10, /* dynamic shared memory without cudaFuncSetAttribute */
    PP_EMU_SHARED_MOST = 227 << 10,
    PP_EMU_SHOWN = 64 /* bytes that a lane shows its warp */
};

/* One launch. The arguments live in `arguments`, which `release` frees after the run. */
struct pp_emu_kernel {
    const char *name;
    const void *function; /* what cudaFuncSetAttribute knows it by */
    uint3 grid, block;
    size_t shared_bytes;
    void (*body)(void *arguments); /* one thread */
    void (*release)(void *arguments);
    void *arguments;
};

/* Checks what CUDA checks at a launch (the result is cudaGetLastError's) and puts the kernel into the stream. */
void pp_emu_launch(const struct pp_emu_kernel *kernel, cudaStream_t stream);

/* Runs it now, in the calling thread. False and a message where it cannot end (threads wait for each other) or wrote
 * behind its shared memory. */
int pp_emu_grid_run(const struct pp_emu_kernel *kernel, char *message, size_t size);

/* What the longest block of the calling thread's last launch took by pp_emu_clock(); 0: no block of it, or of a grid of
 * one, looked at the clock. */
int64_t pp_emu_grid_ns(void);
/* A launch of the calling thread begins, a block of it. */
void pp_emu_clock_grid(uint64_t blocks);
void pp_emu_clock_block(void);

/* Frees what the calling thread used for it. */
void pp_emu_grid_end(void);

/* Called by kernels. Warp operations take a mask of lanes, as CUDA's do; lanes that ended count as arrived, and what is
 * read of them (or of lanes outside of the mask) is garbage. */
void pp_emu_syncthreads(void);
void pp_emu_syncwarp(unsigned mask);
uint64_t pp_emu_shuffle(unsigned mask, uint64_t value, int lane);
unsigned pp_emu_ballot(unsigned mask, int predicate);
void *pp_emu_shared(void);
/* The block's variable of a place in the source. */
void *pp_emu_variable(const void *site, size_t bytes);
/* What all lanes of the warp have brought, one behind the other; until the meeting after the next. */
const void *pp_emu_meet(const void *mine, size_t bytes);
/* The launch fails unless p is aligned to so many bytes. */
void pp_emu_check_aligned(const void *p, int bytes);
/* An asynchronous copy to shared memory; zeros unless real. */
struct pp_emu_copy {
    void *to;
    const void *from;
    int bytes, real;
};
/* Keeps a copy that the running thread has started until it waits. False where it is to land at once. A thread that
 * ends with copies under way is a fault. */
int pp_emu_copy_put(const struct pp_emu_copy *copy);
/* The next of those it has started; false: no more. */
int pp_emu_copy_get(struct pp_emu_copy *copy);
/* The device's clock, at 1 GHz. In a grid of one block it is the real one. Blocks of larger ones run one after another
 * here and beside each other there, so their clock leaps at each look, and sms.c says what time the launch takes. */
int64_t pp_emu_clock(void);

#ifdef __cplusplus
}
#endif

#endif
