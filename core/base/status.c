/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/status.h"

#ifdef __linux__
#include <malloc.h>
#endif
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static _Thread_local char message[PP_MESSAGE_BYTES];

static const int exit_codes[] = {
#define X(name, exit_code, meaning) [PP_##name] = (exit_code),
    PP_STATUS_LIST(X)
#undef X
};

pp_status pp_fail(pp_status status, const char *fmt, ...)
{
    char text[PP_MESSAGE_BYTES]; /* a buffer of its own, because an argument may be pp_message() */
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    memcpy(message, text, sizeof message);
    return status;
}

pp_status pp_prefix(pp_status status, const char *fmt, ...)
{
    if (status == PP_OK) return status;
    char before[PP_MESSAGE_BYTES / 2];
    va_list args;
    va_start(args, fmt);
    vsnprintf(before, sizeof before, fmt, args);
    va_end(args);
    return pp_fail(status, "%s: %s", before, message);
}

const char *pp_message(void) { return message; }

pp_status pp_keep(struct pp_failure *out, pp_status status)
{
    out->status = status;
    if (status != PP_OK) snprintf(out->message, sizeof out->message, "%s", pp_message());
    return status;
}

pp_status pp_fail_again(const struct pp_failure *failure)
{
    return failure->status == PP_OK ? PP_OK : pp_fail(failure->status, "%s", failure->message);
}

int pp_exit_code(pp_status status) { return exit_codes[status]; }

pp_status pp_alloc_bytes(void *out, size_t n, size_t size)
{
    void *memory = calloc(n ? n : 1, size);
    memcpy(out, &memory, sizeof memory);
    if (!memory) return pp_fail(PP_NOMEM, "cannot allocate %zu x %zu bytes", n, size);
    return PP_OK;
}

pp_status pp_grow_bytes(void *array, int64_t n, int64_t *room, size_t size)
{
    const int64_t least = 32, twice = 2 * *room > least ? 2 * *room : least, more = twice > n ? twice : n;
    void *old, *grown;
    if (n <= *room) return PP_OK;
    memcpy(&old, array, sizeof old);
    grown = realloc(old, (size_t)more * size);
    if (!grown) return pp_fail(PP_NOMEM, "cannot allocate %lld x %zu bytes", (long long)more, size);
    memcpy(array, &grown, sizeof grown);
    *room = more;
    return PP_OK;
}

/* Large pages are asked for only where they lie completely inside the array: one at its edge would take more memory. */
pp_status pp_alloc_large_bytes(void *out, size_t n, size_t size)
{
    const uintptr_t page = 2 << 20;
    char *memory;
    PP_TRY(pp_alloc_bytes(&memory, n, size));
    memcpy(out, &memory, sizeof memory);
    const uintptr_t begin = ((uintptr_t)memory + page - 1) / page * page,
                    end = ((uintptr_t)memory + n * size) / page * page;
    if (end > begin) madvise(memory + (begin - (uintptr_t)memory), end - begin, MADV_HUGEPAGE); /* a refusal is fine */
    return PP_OK;
}

void pp_alloc_keep_nothing(void)
{
#ifdef M_MMAP_THRESHOLD
    mallopt(M_MMAP_THRESHOLD, 128 << 10); /* the default value, but glibc does not raise it any more once it was set */
#endif
}

void pp_alloc_keep(void)
{
#ifdef __GLIBC__
    enum { KEPT = 512 << 20, BLOCK = 32 << 20 /* glibc's most for M_MMAP_THRESHOLD */ };
    mallopt(M_TRIM_THRESHOLD, KEPT);
    mallopt(M_MMAP_THRESHOLD, BLOCK);
#endif
}

void pp_alloc_give_back(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
