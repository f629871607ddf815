/* SPDX-License-Identifier: Apache-2.0
 *
 * A lock for a file that only one run at a time may use. It is an advisory lock (flock) on a file of its own,
 * PATH.lock: a lock on a file that is replaced by rename() again and again would not last. The system releases it when
 * the process ends, in whatever way.
 */
#ifndef PP_CORE_BASE_FILE_LOCK_H
#define PP_CORE_BASE_FILE_LOCK_H

#include "core/base/status.h"

#define PP_LOCK_SUFFIX ".lock"

struct pp_file_lock {
    char *path; /* NULL: nothing is held */
    int fd;
};

/* A process that was killed has its locks until the system has taken its memory apart, and a run may begin at once. */
enum { PP_LOCK_PATIENCE_NS = 2000000000 };

/* Locks PATH.lock, where path is that of the file to be used. option: such as "--save"; messages begin with it. PP_IO
 * where another process holds the lock, and still does after PP_LOCK_PATIENCE_NS. In a folder that is not there or
 * cannot be written, and on a file system without locks, it returns PP_OK and holds nothing; so it does with a warning
 * where the lock fails for any other reason. */
pp_status pp_file_lock_take(const char *option, const char *path, struct pp_file_lock *out) PP_MUST_CHECK;
/* Unlocks and removes PATH.lock. Does nothing where nothing is held (all zeros). */
void pp_file_lock_release(struct pp_file_lock *lock);

#endif
