/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/file_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/log.h"

/* Is what was opened still what has the name? Who held it before may have removed it meanwhile. */
static bool is_named(int fd, const char *path)
{
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && stat(path, &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

/* Is it no surprise that there is no lock? The file system has none, or nothing can be written there. (A lock that is
 * there and refuses this user is somebody's.) */
static bool is_usual(const char *path, int error)
{
    static const int usual[] = {ENOLCK, EOPNOTSUPP, ENOSYS, EROFS, ENOENT, ENOTDIR};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (error == usual[i]) return true;
    return error == EACCES && access(path, F_OK) != 0;
}

enum attempt { HELD, TAKEN, NO_LOCKS, AGAIN };

/* *fd is -1 unless the lock is held. NO_LOCKS: errno says why. */
static enum attempt attempt(const char *path, int *fd)
{
    *fd = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666); /* a pipe is no reason to wait */
    const bool locked = *fd >= 0 && flock(*fd, LOCK_EX | LOCK_NB) == 0;
    const int error = errno;
    if (locked && is_named(*fd, path)) return HELD;
    if (*fd >= 0) close(*fd);
    *fd = -1;
    errno = error;
    if (locked || error == EINTR) return AGAIN;
    return error == EWOULDBLOCK ? TAKEN : NO_LOCKS;
}

static pp_status lock(const char *option, const char *path, const char *used, int *fd)
{
    static const struct timespec pause = {.tv_nsec = 50000000};
    const int64_t begin = pp_now_ns();
    for (;;) {
        const enum attempt result = attempt(path, fd);
        const int error = errno;
        const bool late = pp_now_ns() - begin > PP_LOCK_PATIENCE_NS, never = late && result == AGAIN;
        if (never || (result == NO_LOCKS && !is_usual(path, error)))
            pp_warn("%s: %s cannot be locked: %s; let no other run use %s", option, path,
                    never ? "its file system gives open files other numbers" : strerror(error), used);
        if (never || result == HELD || result == NO_LOCKS) return PP_OK;
        if (late)
            return pp_fail(PP_IO, "%s: another run uses %s; has a process of an earlier one survived?", option, used);
        nanosleep(&pause, NULL);
    }
}

pp_status pp_file_lock_take(const char *option, const char *path, struct pp_file_lock *out)
{
    const size_t size = strlen(path) + sizeof PP_LOCK_SUFFIX;
    *out = (struct pp_file_lock){.fd = -1};
    PP_TRY(PP_NEW(&out->path, size));
    snprintf(out->path, size, "%s%s", path, PP_LOCK_SUFFIX);
    pp_status status = lock(option, out->path, path, &out->fd);
    if (out->fd >= 0) return PP_OK;
    free(out->path);
    out->path = NULL;
    return status;
}

void pp_file_lock_release(struct pp_file_lock *lock)
{
    if (!lock->path) return;
    if (is_named(lock->fd, lock->path)) unlink(lock->path); /* else it was removed, and may be another run's by now */
    close(lock->fd);                                        /* last: nobody takes a file that is about to go */
    free(lock->path);
    lock->path = NULL;
}
