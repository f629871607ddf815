/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that one run at a time may use, for as long as that lives. The lock is advisory (flock), on a file of its own
 * beside it: what is renamed into place again and again has no lasting one. The system takes it back when a process
 * ends, however it does.
 */
#ifndef PP_EXEC_FILE_LOCK_H
#define PP_EXEC_FILE_LOCK_H

#include "core/status.h"

struct pp_file_lock {
    char *path; /* NULL: nothing is held */
    int fd;
};

/* path: of the file that is used; PATH.lock is locked. PP_IO where another process holds it. Folders that cannot be
 * written, and file systems without locks, have none: PP_OK, and nothing is held. */
pp_status pp_file_lock_take(const char *path, struct pp_file_lock *out) PP_MUST_CHECK;
/* Removes PATH.lock, too. One that is zero is fine. */
void pp_file_lock_release(struct pp_file_lock *lock);

#endif
