/* SPDX-License-Identifier: Apache-2.0
 *
 * Status codes and the message that goes with a failure.
 *
 * Every function that can fail returns a pp_status. The function that finds the fault stores one message with
 * pp_fail(): what is wrong, where, and what to do about it. Callers pass the status up with PP_TRY and add nothing, or
 * add context with pp_context(). Only the programs print the message and turn the status into an exit code. The message
 * is per thread; a thread that ends hands it over with pp_message()/pp_fail(). No library code exits, aborts or prints.
 */
#ifndef PP_CORE_STATUS_H
#define PP_CORE_STATUS_H

#include <stddef.h>
#include <stdint.h>

/* X(name, exit code, meaning) */
#define PP_STATUS_LIST(X) \
    X(OK, 0, "ok") \
    X(USAGE, 2, "the program was called wrongly") \
    X(INPUT, 1, "a file or a value read from outside is not usable") \
    X(IO, 1, "the operating system refused an operation") \
    X(NOMEM, 1, "out of memory") \
    X(PEER, 1, "another worker failed or went away") \
    X(UNSUPPORTED, 1, "this build or machine cannot do that") \
    X(INTERRUPTED, 130, "stopped by a signal") \
    X(INTERNAL, 1, "a defect in ppkit")

/* For messages, behind a noun that is counted: "%d row%s", "%d microbatch%s". */
static inline const char *pp_plural(int64_t n) { return n == 1 ? "" : "s"; }
static inline const char *pp_plural_es(int64_t n) { return n == 1 ? "" : "es"; }

typedef enum pp_status {
#define X(name, exit_code, meaning) PP_##name,
    PP_STATUS_LIST(X)
#undef X
} pp_status;

#define PP_MUST_CHECK __attribute__((warn_unused_result))
#define PP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Backends that are loaded at run time store their messages here too: the only functions that programs export. */
#pragma GCC visibility push(default)

/* Stores the message of a failure for this thread and returns `status`, so that `return pp_fail(...)` reads well. */
pp_status pp_fail(pp_status status, const char *fmt, ...) PP_PRINTF(2, 3);
/* Puts "text: " before the stored message and returns `status` unchanged. Does nothing when status is PP_OK. */
pp_status pp_context(pp_status status, const char *fmt, ...) PP_PRINTF(2, 3);
/* The message of this thread's last failure; valid until the next failure of this thread. Never NULL. Whoever copies
 * it, to hand it to another thread or to keep it over other failures, has PP_MESSAGE_BYTES of room for it. */
enum { PP_MESSAGE_BYTES = 1024 };
const char *pp_message(void);
/* Exit code of a program that ends with `status`. */
int pp_exit_code(pp_status status);

#define PP_TRY(expression) \
    do { \
        pp_status pp_try_status_ = (expression); \
        if (pp_try_status_ != PP_OK) return pp_try_status_; \
    } while (0)

/* For functions with something to release: sets the local `status` and jumps to `done`. */
#define PP_TRY_DONE(expression) \
    do { \
        status = (expression); \
        if (status != PP_OK) goto done; \
    } while (0)

/* Zeroed memory for n elements; *out = NULL and PP_NOMEM with a message when there is none. n = 0 gives one element. */
pp_status pp_alloc_bytes(void *out, size_t n, size_t size) PP_MUST_CHECK;
#define PP_NEW(out, n) pp_alloc_bytes((out), (size_t)(n), sizeof **(out))

/* Room for n elements in an array that has it for *room and grows as it is filled: it moves, and new elements are not
 * set. Does nothing if there is room; after a failure the array is as it was. An array that is NULL has room for 0. */
pp_status pp_grow_bytes(void *array, int64_t n, int64_t *room, size_t size) PP_MUST_CHECK;
#define PP_GROW(array, n, room) ((n) <= *(room) ? PP_OK : pp_grow_bytes((array), (n), (room), sizeof **(array)))

/* As PP_NEW, for an array of many megabytes that all of is used: in large pages where the system has them, which takes
 * no more memory, only less time. */
pp_status pp_alloc_large_bytes(void *out, size_t n, size_t size) PP_MUST_CHECK;
#define PP_NEW_LARGE(out, n) pp_alloc_large_bytes((out), (size_t)(n), sizeof **(out))

#pragma GCC visibility pop

/* Large blocks go back to the system when they are freed. glibc would otherwise keep as many bytes as the largest block
 * that was ever freed, in each thread. At the start of a program whose memory is measured. */
void pp_alloc_keep_nothing(void);
/* Gives the system what is free now. */
void pp_alloc_give_back(void);

#endif
