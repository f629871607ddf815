/* SPDX-License-Identifier: Apache-2.0
 *
 * Races in a launch, for kernels that are compiled with PP_EMU_RACES (kernel.h) and -fsanitize=thread.
 */
#ifndef PP_EMULATOR_RACE_H
#define PP_EMULATOR_RACE_H

#ifdef __cplusplus
extern "C" {
#endif

/* A thread of the calling thread's launch starts. launch: no other one's number, 0 is none's. */
void pp_emu_race_start(unsigned launch, const char *kernel);
/* The thread has passed __syncthreads, or __syncwarp. */
void pp_emu_race_barrier(void);
void pp_emu_race_warp(void);
/* A variable of the block, in shared memory. */
void pp_emu_race_variable(const void *p, int bytes);
/* What the compiler does not report: asynchronous copies, and tensor cores' factors. */
void pp_emu_race_look(const void *p, int bytes, int writes);
/* Found so far in all launches; the first few are complained about. */
int pp_emu_races(void);

#ifdef __cplusplus
}
#endif

#endif
