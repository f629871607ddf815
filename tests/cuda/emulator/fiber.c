/* SPDX-License-Identifier: Apache-2.0 */
#include "fiber.h"

#include <stdint.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
/* void pp_fiber_jump(void **save, void *to): the registers that a call preserves, on the stack. */
__asm__(".text\n"
        ".globl pp_fiber_jump\n"
        ".hidden pp_fiber_jump\n"
        ".type pp_fiber_jump, @function\n"
        "pp_fiber_jump:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size pp_fiber_jump, .-pp_fiber_jump\n");
void pp_fiber_jump(void **save, void *to);

void pp_fiber_start(struct pp_fiber *fiber, void (*entry)(void))
{
    /* As after a call: the stack is 8 short of a multiple of 16 when entry() begins. */
    void **top = (void **)(((uintptr_t)fiber->stack + fiber->stack_bytes) & ~(uintptr_t)15) - 2;
    *top = (void *)entry;
    top[1] = NULL;
    memset(top - 6, 0, 6 * sizeof(*top));
    fiber->sp = top - 6;
}

static void jump(struct pp_fiber *from, struct pp_fiber *to) { pp_fiber_jump(&from->sp, to->sp); }
#else
void pp_fiber_start(struct pp_fiber *fiber, void (*entry)(void))
{
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = fiber->stack_bytes;
    fiber->context.uc_link = NULL;
    makecontext(&fiber->context, entry, 0);
}

static void jump(struct pp_fiber *from, struct pp_fiber *to) { swapcontext(&from->context, &to->context); }
#endif

#if defined(__SANITIZE_ADDRESS__)
/* AddressSanitizer wants to know which stack is in use; the thread's own it tells at the first switch away from it. */
static _Thread_local const void *home;
static _Thread_local size_t home_bytes;
static _Thread_local int left_home;

void pp_fiber_switch(struct pp_fiber *from, struct pp_fiber *to, int dies)
{
    void *fake = NULL;
    left_home = !from->stack;
    __sanitizer_start_switch_fiber(dies ? NULL : &fake, to->stack ? to->stack : home,
                                   to->stack ? to->stack_bytes : home_bytes);
    jump(from, to);
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
}

/* Frames that were left by a switch, not by a return, are still marked in its shadow memory. */
void pp_fiber_forget(void *stack, size_t bytes) { ASAN_UNPOISON_MEMORY_REGION(stack, bytes); }

void pp_fiber_entered(void)
{
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(NULL, &bottom, &bytes);
    if (left_home) {
        home = bottom;
        home_bytes = bytes;
    }
}
#else
void pp_fiber_switch(struct pp_fiber *from, struct pp_fiber *to, int dies)
{
    (void)dies;
    jump(from, to);
}

void pp_fiber_entered(void) {}

void pp_fiber_forget(void *stack, size_t bytes)
{
    (void)stack;
    (void)bytes;
}
#endif
