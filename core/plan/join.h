/* SPDX-License-Identifier: Apache-2.0
 *
 * Joins: collectives inside a task, among the tensor-parallel, expert-parallel or context-parallel workers. A program
 * has a call for each, and the device hands that call to the run (struct pp_join), which performs the collective.
 */
#ifndef PP_CORE_PLAN_JOIN_H
#define PP_CORE_PLAN_JOIN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/plan/workers.h"

/* Element types of a collective. A sum of two bfloat16 numbers is computed in float32 and rounded to bfloat16. */
enum pp_sum_type { PP_SUM_FLOAT, PP_SUM_DOUBLE, PP_SUM_BF16, PP_SUM_TYPES };
/* Bytes of an element (enum pp_sum_type). */
static inline int pp_sum_bytes(int type) { return type == PP_SUM_DOUBLE ? 8 : type == PP_SUM_BF16 ? 2 : 4; }

/* Collectives on memory[elements], which each of n workers has. Part i of the n equal parts of the memory belongs to
 * the i-th worker of the group. */
enum pp_join_op {
    PP_JOIN_NONE,
    PP_JOIN_ALL_REDUCE,     /* memory = the sum over the workers, added in their order: the same bits in each worker */
    PP_JOIN_REDUCE_SCATTER, /* the own part = the sum over the workers; the content of the other parts is undefined */
    PP_JOIN_ALL_GATHER,     /* memory = all parts, each as its owner has it */
    PP_JOIN_ALL_TO_ALL,     /* see pp_join_call.each */
    PP_JOIN_SHIFT,          /* memory = what the worker before has at pp_join_call.from; of the first, the last one */
    PP_JOIN_AWAIT,          /* no collective: waits for the one with the number `beside` (pp_join_call.beside) */
};

/* Does it send what is at pp_join_call.from, and write `memory`, which it does not read? */
static inline bool pp_join_exchanges(enum pp_join_op op) { return op == PP_JOIN_ALL_TO_ALL || op == PP_JOIN_SHIFT; }

struct pp_join_call {
    enum pp_join_op op;
    enum pp_join_group group;
    void *memory; /* read and written; exchanges (pp_join_exchanges()) only write it */
    int64_t elements;
    int type; /* enum pp_sum_type */
    /* All to all, among n workers: `from` and `memory` hold n * each equal pieces, and each worker sends `each` pieces
     * to every worker (itself included). There are two orders of pieces:
     *   by partner   index partner * each + k: all pieces for (or from) the first worker, then all for the second, ...
     *   by number    index k * n + partner: the first piece for (or from) every worker, then the second, ...
     * `from` is by partner and `memory` by number; with `back` it is the other way round.
     *
     * halves: pieces are the two chunks that a worker has of each row (pp_shape_halves_rows()). Forth, `from` holds
     * only the worker's own chunks (`each` pieces), which all workers get, and `memory` gets the chunks of all workers
     * in the order of the tokens. Back, `from` has the order of the tokens, and `memory` gets, by partner, what each
     * worker has for the chunks of this one.
     *
     * Shift: `from` and `memory` are as long, and apart. Each worker sends all of `from` to the next one of the group,
     * the last worker to the first: of two, both to each other. `each`, `back` and `halves` are 0. */
    const void *from;
    int each;
    bool back, halves;
    /* 0: the next call waits for this join. Else the number of the join, 1 to pp_shape_most_beside(): it may run beside
     * the calls that follow, until a PP_JOIN_AWAIT of its number, or of a higher one of the same group and type. Such
     * joins run one after another. After all are awaited numbers begin with 1 again. */
    int beside;
};

/* How a device has joins performed. */
struct pp_join {
    /* Performs a join on memory of the device. Queue devices: it is put behind all that the compute queue holds, and
     * before what comes next (or beside it, see pp_join_call.beside); run() does not wait for it. Other devices: it is
     * done when run() returns. A failure is kept, and reported after the program. */
    void (*run)(void *arg, const struct pp_join_call *what);
    void *arg;
    /* Set by run() after a failure. Other workers may still read the memory, so the device skips the rest of the
     * program. */
    bool failed;
};

/* What a join needs, for predictions and for whoever opens ways to perform it. Calls that are no joins have
 * PP_JOIN_NONE and zeros. */
struct pp_join_work {
    enum pp_join_op op;
    int type;      /* enum pp_sum_type; without meaning for an await */
    int64_t bytes; /* of all parts, or pieces, together */
    int rounds;    /* times that a ring of the workers carries the bytes around: all-reduce 2, await 0, else 1 (all to
                    * all uses no ring: each piece goes straight to its worker, all at once; and a shift goes a step) */
    int pieces;    /* that a worker sends another one: all to all pp_join_call.each, shift 1, else 0 */
    enum pp_join_group group;
    int beside; /* pp_join_call.beside */
};

#endif
