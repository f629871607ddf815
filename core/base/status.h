/* SPDX-License-Identifier: Apache-2.0
 *
 * Status codes and the message that goes with a failure.
 *
 * Every function that can fail returns a pp_status. The function that finds the fault stores one message with
 * pp_fail(): what is wrong, where, and what to do about it. Callers pass the status up with PP_TRY and add nothing, or
 * say more with pp_prefix(). Only the programs print the message and turn the status into an exit code. The message
 * is per thread; a thread that ends hands it over with pp_message()/pp_fail(). No library code ends the process for a
 * failure, or prints it. (What is no failure it may tell: core/base/log.h. By signals a process ends in
 * core/options/main.c.)
 */
#ifndef PP_CORE_BASE_STATUS_H
#define PP_CORE_BASE_STATUS_H

#include <stddef.h>
#include <stdint.h>

/* The message of what a signal has stopped, and that has no more to say of it. */
#define PP_BY_SIGNAL "stopped by a signal"

/* X(name, exit code, meaning) */
#define PP_STATUS_LIST(X)                                                                                              \
    X(OK, 0, "ok")                                                                                                     \
    X(USAGE, 2, "the program was called wrongly")                                                                      \
    X(INPUT, 1, "a file or a value read from outside is not usable")                                                   \
    X(IO, 1, "the operating system refused an operation")                                                              \
    X(NOMEM, 1, "out of memory")                                                                                       \
    X(PEER, 1, "another worker failed or went away")                                                                   \
    X(UNSUPPORTED, 1, "this build or machine cannot do that")                                                          \
    X(INTERRUPTED, 130, PP_BY_SIGNAL)                                                                                  \
    X(INTERNAL, 1, "a defect in ppkit")

/* The ending of a counted noun in a message: "%d row%s" and "%d microbatch%s". */
static inline const char *pp_plural(int64_t n) { return n == 1 ? "" : "s"; }
static inline const char *pp_plural_es(int64_t n) { return n == 1 ? "" : "es"; }

typedef enum pp_status {
#define X(name, exit_code, meaning) PP_##name,
    PP_STATUS_LIST(X)
#undef X
} pp_status;

#define PP_MUST_CHECK __attribute__((warn_unused_result))
#define PP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Backends that are loaded at run time call these functions, too: they are the only ones that programs export. */
#pragma GCC visibility push(default)

/* Stores the message of a failure for this thread and returns `status`, so that `return pp_fail(...)` reads well. */
pp_status pp_fail(pp_status status, const char *fmt, ...) PP_PRINTF(2, 3) PP_MUST_CHECK;
/* Puts "text: " before the stored message and returns `status` unchanged. Does nothing when status is PP_OK. */
pp_status pp_prefix(pp_status status, const char *fmt, ...) PP_PRINTF(2, 3) PP_MUST_CHECK;
/* The message of this thread's last failure. Never NULL; valid until the thread's next failure. It has at most
 * PP_MESSAGE_BYTES bytes, its 0 included, for those who copy it. */
enum { PP_MESSAGE_BYTES = 1024 };
const char *pp_message(void);
/* A failure that is kept while other calls may fail. */
struct pp_failure {
    pp_status status;
    char message[PP_MESSAGE_BYTES]; /* unless PP_OK */
};
/* Keeps `status`, and the message of this thread's last failure, which is its; returns `status`. */
pp_status pp_keep(struct pp_failure *out, pp_status status);
/* Makes it the last failure again, unless it is none; returns its status. Another thread may do so. */
pp_status pp_fail_again(const struct pp_failure *failure);
/* Exit code of a program that ends with `status`. */
int pp_exit_code(pp_status status);

#define PP_TRY(expression) \
    do { \
        pp_status pp_try_status_ = (expression); \
        if (pp_try_status_ != PP_OK) return pp_try_status_; \
    } while (0)

/* For functions with something to release: sets the local variable `status`, and after a failure jumps to `done`. */
#define PP_TRY_DONE(expression) \
    do { \
        status = (expression); \
        if (status != PP_OK) goto done; \
    } while (0)

/* Allocates n zeroed elements (one if n is 0) of `size` bytes. PP_NOMEM: *out is NULL. */
pp_status pp_alloc_bytes(void *out, size_t n, size_t size) PP_MUST_CHECK;
#define PP_NEW(out, n) pp_alloc_bytes((out), (size_t)(n), sizeof **(out))

/* Makes room for n elements in an array that grows while it is filled. *room: elements that it has room for (0 if the
 * array is NULL). If there is no room yet, the array moves, and new elements are not initialised. PP_NOMEM: the array
 * is unchanged. */
pp_status pp_grow_bytes(void *array, int64_t n, int64_t *room, size_t size) PP_MUST_CHECK;
#define PP_GROW(array, n, room) ((n) <= *(room) ? PP_OK : pp_grow_bytes((array), (n), (room), sizeof **(array)))

/* As PP_NEW, for arrays of many megabytes that are used as a whole: they get large pages where the system has them,
 * which saves time, and takes no more memory. */
pp_status pp_alloc_large_bytes(void *out, size_t n, size_t size) PP_MUST_CHECK;
#define PP_NEW_LARGE(out, n) pp_alloc_large_bytes((out), (size_t)(n), sizeof **(out))

#pragma GCC visibility pop

/* From now on large blocks go back to the system when they are freed; glibc would otherwise keep, in each thread, as
 * many bytes as the largest block that was ever freed. For the start of a program whose memory is measured. */
void pp_alloc_keep_nothing(void);
/* From now on memory that is freed stays with the process, so that it need not be asked for, and filled with zeros,
 * again: blocks of up to 32 MiB, half a GiB in each arena of glibc, of which threads have their own. */
void pp_alloc_keep(void);
/* Gives all free memory of the heap back to the system. */
void pp_alloc_give_back(void);

#endif
