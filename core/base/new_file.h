/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that exist either complete or not at all: they are written under a temporary name, and renamed when they are
 * complete.
 */
#ifndef PP_CORE_BASE_NEW_FILE_H
#define PP_CORE_BASE_NEW_FILE_H

#include <limits.h>
#include <stdbool.h>

#include "core/base/status.h"

struct pp_new_file {
    char path[PATH_MAX];      /* the final name; of a regular file with symbolic links resolved */
    char temporary[PATH_MAX]; /* the temporary name, in the same folder; "": a device or a pipe, written directly */
};

/* Chooses both names, and creates nothing. option: such as "--save"; messages begin with it. again: the file is written
 * many times, so its temporary name is always the same, and killed runs leave at most one behind; else the name has the
 * process id. PP_USAGE for folders and for paths that are too long, PP_IO for links that lead in a circle. */
pp_status pp_new_file_choose(const char *option, const char *path, bool again, struct pp_new_file *out) PP_MUST_CHECK;
/* The name to open for writing. */
const char *pp_new_file_target(const struct pp_new_file *file);
/* Renames the file, which is complete and closed, and waits until its new name is on the disk. It gets the permissions
 * of a file that it replaces. So that its content is there before, the caller calls fsync() before it closes the file.
 * Does nothing if there is no temporary name. Returns 0, or -1 with errno: then the file still has its temporary
 * name. */
int pp_new_file_put(struct pp_new_file *file);

#endif
