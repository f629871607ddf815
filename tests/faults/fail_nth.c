/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded into a program (LD_PRELOAD): lets the n-th call of one kind fail. Calls count if they come from the program
 * itself, from SQLite, Jansson or the C library on their behalf, from main() on; those of other libraries (MPI, BLAS,
 * hwloc) are not ours to survive. A stream that is flushed is one call; standard error never fails.
 *
 *   PP_FAULT_KIND   memory:  malloc, calloc, realloc, aligned memory, threads give ENOMEM
 *                   full:    writing gives ENOSPC
 *                   io:      reading, writing, sync give EIO
 *                   reading: reading a stream of a user's file gives EIO; other calls give a few bytes, so that some
 *                            fail within a line
 *                   busy:    taking a lock of a file gives EAGAIN
 *   PP_FAULT_AT     the first call that fails; 0: none
 *   PP_FAULT_COUNT  how many fail from there on (default 1)
 *   PP_FAULT_FILE   at the end, the number of calls of the kind is written here
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default"))) extern
#define CALLER ((uintptr_t)__builtin_return_address(0))

enum kind { NONE, MEMORY, FULL, IO, READING, BUSY };
static const char *const kind_names[] = {"", "memory", "full", "io", "reading", "busy"};
enum { KINDS = sizeof kind_names / sizeof *kind_names, OBJECTS = 8 };

static struct {
    uintptr_t first, last;
} objects[OBJECTS];
static int nobjects;
static enum kind failing;
static long fail_at, fail_count = 1;
static atomic_long calls;
static char report[4096];

static int take_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    static const char *const ours[] = {"libsqlite3.so", "libjansson.so", "libc.so"};
    (void)size, (void)arg;
    bool wanted = info->dlpi_name[0] == '\0'; /* the program */
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) wanted = wanted || strstr(info->dlpi_name, ours[i]);
    for (int i = 0; wanted && i < info->dlpi_phnum && nobjects < OBJECTS; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
        objects[nobjects].first = info->dlpi_addr + part->p_vaddr;
        objects[nobjects++].last = info->dlpi_addr + part->p_vaddr + part->p_memsz;
    }
    return 0;
}

static bool is_ours(uintptr_t caller)
{
    for (int i = 0; i < nobjects; i++)
        if (caller >= objects[i].first && caller < objects[i].last) return true;
    return false;
}

/* Is this call of ours, of the kind, to fail? */
static bool counts(enum kind kind)
{
    if (kind != failing) return false;
    const long number = atomic_fetch_add(&calls, 1) + 1;
    return fail_at > 0 && number >= fail_at && number - fail_at < fail_count;
}

static bool fails(enum kind kind, uintptr_t caller) { return kind == failing && is_ours(caller) && counts(kind); }

/* Streams. The C library reads and writes them by calls of its own, which do not come by here. So standard output, and
 * what the program opens, become streams that are read and written by functions of ours. */
enum { STREAMS = 64, FEW_BYTES = 61 };
static struct stream {
    FILE *file;
    int fd;
} streams[STREAMS];
static pthread_mutex_t stream_lock = PTHREAD_MUTEX_INITIALIZER;

/* Of a stream 0 bytes are an error. */
static ssize_t stream_write(void *stream, const char *data, size_t size)
{
    const bool full = counts(FULL);
    if (full || counts(IO)) {
        errno = full ? ENOSPC : EIO;
        return 0;
    }
    const ssize_t put = syscall(SYS_write, ((struct stream *)stream)->fd, data, size);
    return put < 0 ? 0 : put;
}

static ssize_t stream_read(void *stream, char *data, size_t size)
{
    if (counts(IO) || counts(READING)) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_read, ((struct stream *)stream)->fd, data,
                   failing == READING && size > FEW_BYTES ? FEW_BYTES : size);
}

static int stream_seek(void *stream, off64_t *to, int whence)
{
    const off64_t at = lseek64(((struct stream *)stream)->fd, *to, whence);
    if (at >= 0) *to = at;
    return at < 0 ? -1 : 0;
}

static int stream_close(void *stream)
{
    struct stream *s = stream;
    pthread_mutex_lock(&stream_lock);
    s->file = NULL;
    pthread_mutex_unlock(&stream_lock);
    return close(s->fd);
}

/* NULL: there is no room, or no memory. */
static FILE *stream_of(int fd, const char *mode)
{
    const cookie_io_functions_t functions = {
        .read = stream_read, .write = stream_write, .seek = stream_seek, .close = stream_close};
    FILE *file = NULL;
    int i = 0;
    pthread_mutex_lock(&stream_lock);
    while (i < STREAMS && streams[i].file) i++;
    if (i < STREAMS) {
        streams[i].fd = fd;
        file = streams[i].file = fopencookie(&streams[i], mode, functions);
    }
    pthread_mutex_unlock(&stream_lock);
    return file;
}

/* Before main(), after the constructors of the libraries. */
static int (*real_main)(int, char **, char **);
static int main_with_faults(int argc, char **argv, char **environment)
{
    const char *kind = getenv("PP_FAULT_KIND"), *at = getenv("PP_FAULT_AT"), *count = getenv("PP_FAULT_COUNT"),
               *file = getenv("PP_FAULT_FILE");
    dl_iterate_phdr(take_object, NULL);
    if (at) fail_at = atol(at);
    if (count) fail_count = atol(count);
    if (file) snprintf(report, sizeof report, "%s", file);
    for (int i = 1; kind && i < KINDS; i++)
        if (strcmp(kind, kind_names[i]) == 0) failing = (enum kind)i;
    unsetenv("LD_PRELOAD"); /* programs that it starts are not meant */
    FILE *output = failing == FULL || failing == IO ? stream_of(STDOUT_FILENO, "w") : NULL;
    if (output) stdout = output;
    return real_main(argc, argv, environment);
}

EXPORT int __libc_start_main(int (*program)(int, char **, char **), int argc, char **argv, void (*init)(void),
                             void (*finish)(void), void (*at_exit)(void), void *stack)
{
    int (*start)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
    *(void **)&start = dlsym(RTLD_NEXT, "__libc_start_main");
    real_main = program;
    return start(main_with_faults, argc, argv, init, finish, at_exit, stack);
}

__attribute__((destructor)) static void write_report(void)
{
    failing = NONE;
    if (!report[0]) return;
    FILE *out = fopen(report, "w");
    if (!out) return;
    fprintf(out, "%ld\n", atomic_load(&calls));
    fclose(out);
}

/* The function behind ours. */
#define NEXT(function, name)                                                                                           \
    do {                                                                                                               \
        if (!(function)) *(void **)&(function) = dlsym(RTLD_NEXT, name);                                               \
    } while (0)

#define FAIL(kind, code, result)                                                                                       \
    do {                                                                                                               \
        if (fails(kind, CALLER)) {                                                                                     \
            errno = code;                                                                                              \
            return result;                                                                                             \
        }                                                                                                              \
    } while (0)

/* To the next library rather than to the C library's own functions: that may be AddressSanitizer's. */
EXPORT void *malloc(size_t size)
{
    static void *(*next)(size_t);
    NEXT(next, "malloc");
    FAIL(MEMORY, ENOMEM, NULL);
    return next(size);
}

EXPORT void *calloc(size_t n, size_t size)
{
    static void *(*next)(size_t, size_t);
    NEXT(next, "calloc");
    FAIL(MEMORY, ENOMEM, NULL);
    return next(n, size);
}

EXPORT void *realloc(void *old, size_t size)
{
    static void *(*next)(void *, size_t);
    NEXT(next, "realloc");
    FAIL(MEMORY, ENOMEM, NULL);
    return next(old, size);
}

EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    static void *(*next)(size_t, size_t);
    NEXT(next, "aligned_alloc");
    FAIL(MEMORY, ENOMEM, NULL);
    return next(alignment, size);
}

/* Without dlsym(), which would wait for ever where the loader waits for this thread: OpenBLAS's, when it is closed. */
static void *map(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    return (void *)syscall(SYS_mmap, address, size, protection, flags, fd, offset);
}

EXPORT void *mmap64(void *address, size_t size, int protection, int flags, int fd, off64_t offset)
{
    FAIL(MEMORY, ENOMEM, (void *)-1);
    return map(address, size, protection, flags, fd, offset);
}

EXPORT void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    FAIL(MEMORY, ENOMEM, (void *)-1);
    return map(address, size, protection, flags, fd, offset);
}

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *arg)
{
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    NEXT(next, "pthread_create");
    FAIL(MEMORY, EAGAIN, EAGAIN);
    return next(thread, attributes, body, arg);
}

/* Does what our streams do count, of one with this mode? */
static bool is_counted(const char *mode, uintptr_t caller)
{
    const bool writes = mode[0] == 'w' && (failing == FULL || failing == IO);
    const bool reads = mode[0] == 'r' && (failing == READING || failing == IO);
    return (writes || reads) && !strchr(mode, '+') && is_ours(caller);
}

EXPORT FILE *fopen(const char *path, const char *mode)
{
    static FILE *(*next)(const char *, const char *);
    NEXT(next, "fopen");
    const bool is_of_system = !strncmp(path, "/proc/", 6) || !strncmp(path, "/sys/", 5); /* there are hundreds */
    if (!is_counted(mode, CALLER) || (failing == READING && is_of_system)) return next(path, mode);
    const int fd = open(path, mode[0] == 'r' ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC, 0666);
    FILE *file = fd < 0 ? NULL : stream_of(fd, mode);
    if (fd >= 0 && !file) close(fd);
    return file;
}

EXPORT FILE *fdopen(int fd, const char *mode)
{
    static FILE *(*next)(int, const char *);
    NEXT(next, "fdopen");
    return is_counted(mode, CALLER) ? stream_of(fd, mode) : next(fd, mode);
}

EXPORT int fileno(FILE *file)
{
    static int (*next)(FILE *);
    NEXT(next, "fileno");
    int fd = -1;
    pthread_mutex_lock(&stream_lock);
    for (int i = 0; i < STREAMS && fd < 0; i++)
        if (streams[i].file == file) fd = streams[i].fd;
    pthread_mutex_unlock(&stream_lock);
    return fd < 0 ? next(file) : fd;
}

EXPORT ssize_t write(int fd, const void *data, size_t size)
{
    static ssize_t (*next)(int, const void *, size_t);
    NEXT(next, "write");
    if (fd > STDERR_FILENO) FAIL(FULL, ENOSPC, -1);
    if (fd > STDERR_FILENO) FAIL(IO, EIO, -1);
    return next(fd, data, size);
}

EXPORT ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    static ssize_t (*next)(int, const void *, size_t, off64_t);
    NEXT(next, "pwrite64");
    FAIL(FULL, ENOSPC, -1);
    FAIL(IO, EIO, -1);
    return next(fd, data, size, offset);
}

EXPORT ssize_t pread64(int fd, void *data, size_t size, off64_t offset)
{
    static ssize_t (*next)(int, void *, size_t, off64_t);
    NEXT(next, "pread64");
    FAIL(IO, EIO, -1);
    return next(fd, data, size, offset);
}

EXPORT ssize_t pread(int fd, void *data, size_t size, off_t offset)
{
    FAIL(IO, EIO, -1);
    return syscall(SYS_pread64, fd, data, size, offset);
}

EXPORT int ftruncate64(int fd, off64_t length)
{
    static int (*next)(int, off64_t);
    NEXT(next, "ftruncate64");
    FAIL(FULL, ENOSPC, -1);
    FAIL(IO, EIO, -1);
    return next(fd, length);
}

EXPORT int fdatasync(int fd)
{
    static int (*next)(int);
    NEXT(next, "fdatasync");
    FAIL(IO, EIO, -1);
    return next(fd);
}

EXPORT int fsync(int fd)
{
    static int (*next)(int);
    NEXT(next, "fsync");
    FAIL(IO, EIO, -1);
    return next(fd);
}

EXPORT int fcntl64(int fd, int command, ...)
{
    static int (*next)(int, int, ...);
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    NEXT(next, "fcntl64");
    bool locks = command == F_SETLK && ((struct flock *)argument)->l_type != F_UNLCK;
    if (locks) FAIL(BUSY, EAGAIN, -1);
    return next(fd, command, argument);
}
