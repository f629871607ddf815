/* SPDX-License-Identifier: Apache-2.0
 *
 * The device's clock, as kernels see it.
 */
#include <stdatomic.h>
#include <time.h>

#include "emulator.h"

enum {
    LEAP_NS = 1000000, /* of a grid of several blocks, at each look */
    COLD = 5,          /* times as slow */
    NAP_NS = 1000      /* with what waking up takes some 50 us */
};

/* The calling thread's launch. */
static _Thread_local struct grid {
    uint64_t blocks;
    int slowness;                 /* 0: no block of it has looked */
    int64_t first_ns, last_ns;    /* of one block: its looks */
    int64_t block_ns, longest_ns; /* of several: of the running one, of all */
} grid;

static atomic_llong worked_ns; /* launches of the process that have looked */

void pp_emu_clock_grid(uint64_t blocks) { grid = (struct grid){.blocks = blocks}; }
void pp_emu_clock_block(void) { grid.block_ns = 0; }

int64_t pp_emu_clock(void)
{
    if (!grid.slowness) grid.slowness = atomic_load(&worked_ns) < pp_emu_settings()->cold_ns ? COLD : 1;
    if (grid.blocks > 1) {
        grid.block_ns += LEAP_NS;
        if (grid.block_ns <= grid.longest_ns) return grid.block_ns;
        grid.longest_ns = grid.block_ns;
        atomic_fetch_add(&worked_ns, (long long)LEAP_NS * grid.slowness);
        return grid.block_ns;
    }
    /* Kernels that watch it run beside each other however few the cores are, and leave those to what computes. */
    nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    const int64_t now = pp_emu_now_ns();
    if (!grid.first_ns) grid.first_ns = grid.last_ns = now;
    atomic_fetch_add(&worked_ns, now - grid.last_ns);
    grid.last_ns = now;
    return grid.first_ns + (now - grid.first_ns) / grid.slowness;
}

int64_t pp_emu_grid_ns(void) { return grid.longest_ns * grid.slowness; }
