/* SPDX-License-Identifier: Apache-2.0
 *
 * Switching between stacks of one thread. x86-64 by hand (some nanoseconds), else ucontext.
 */
#ifndef PP_EMULATOR_FIBER_H
#define PP_EMULATOR_FIBER_H

#include <stddef.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

struct pp_fiber {
#if defined(__x86_64__)
    void *sp;
#else
    ucontext_t context;
#endif
    void *stack; /* lowest address; NULL: the thread's own stack */
    size_t stack_bytes;
};

/* entry() must never return; it runs at the first switch to the fiber. */
void pp_fiber_start(struct pp_fiber *fiber, void (*entry)(void));
/* from: where the running one is kept. dies: it will not be switched to again (its stack may be started anew). */
void pp_fiber_switch(struct pp_fiber *from, struct pp_fiber *to, int dies);
/* The first thing that entry() calls. */
void pp_fiber_entered(void);
/* Before the memory of a stack is given back: who gets it next must not be taken for its frames. */
void pp_fiber_forget(void *stack, size_t bytes);

#endif
