/* SPDX-License-Identifier: Apache-2.0
 *
 * What workers do together inside a task: a call of a program says what, and the run that carries it out does it.
 */
#ifndef PP_CORE_JOIN_H
#define PP_CORE_JOIN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/workers.h"

/* Of what sums are made; bfloat16 numbers are added as float32, and each sum of two is rounded. */
enum pp_sum_type { PP_SUM_FLOAT, PP_SUM_DOUBLE, PP_SUM_BF16, PP_SUM_TYPES };
/* Bytes of an element. */
static inline int pp_sum_bytes(int type) { return type == PP_SUM_DOUBLE ? 8 : type == PP_SUM_BF16 ? 2 : 4; }

/* What the workers of a rank make together of memory[elements] that each of them has: the sum over all of them, added
 * in their order, the same bits in each; or, of as many equal parts as there are workers, the sum of each one's own
 * part alone (the others hold nothing of use then); or in each worker all parts, each as its owner has it. */
enum pp_join_op {
    PP_JOIN_NONE,
    PP_JOIN_ALL_REDUCE,
    PP_JOIN_REDUCE_SCATTER,
    PP_JOIN_ALL_GATHER,
    PP_JOIN_ALL_TO_ALL,
    PP_JOIN_AWAIT, /* what comes next waits for those that were asked for, up to the one with number `beside` */
};

struct pp_join_call {
    enum pp_join_op op;
    enum pp_join_group group;
    void *memory;
    int64_t elements;
    int type; /* enum pp_sum_type */
    /* All to all: into memory comes what was in `from`, elsewhere. The elements are equal pieces, of which each worker
     * sends so many to each: here those for worker after worker; there, where they go, of the first that each sends
     * those from worker after worker, then of the second, and so on. From here to there, or back. halves: pieces are
     * the two chunks that a worker has of each row (pp_shape_gathers_keys). Here those of one worker alone, which all
     * get; there those of all, in the order of the tokens; and back each gets its own ones, of worker after worker. */
    const void *from;
    int each;
    bool back, halves;
    /* 0: what comes next waits for it. Else, of tensor ranks, its number, from 1 on to pp_shape_sum_pieces() at most:
     * it may run beside what comes next, but such ones run one after another, until an await of its number or a later
     * one. Behind that of the last one they begin with 1 again. */
    int beside;
};

/* Where workers meet inside a task (pp_shape.tensor, expert_parallel, context). run(): in memory of the device,
 * and on a queue device behind what its compute queue holds, and before what comes next (or beside it). A device
 * without a queue has nothing beside: there all is done when run() returns. Keeps failures for after the program. */
struct pp_join {
    void (*run)(void *arg, const struct pp_join_call *what);
    void *arg;
    bool failed; /* set by run(): others may still read the memory, so the device leaves the rest of a program out */
};

/* A call's: bytes of all parts, and how often a ring of the workers carries them around; of calls that are none
 * PP_JOIN_NONE, and 0. */
struct pp_join_work {
    enum pp_join_op op; /* of all to all each part goes to another worker, at once, and none around */
    int64_t bytes;
    int rounds; /* 2 of an all-reduce, 1 of the others, 0 of an await */
    int pieces; /* of all to all: for each worker */
    enum pp_join_group group;
    int beside; /* pp_join_call.beside */
};

#endif
