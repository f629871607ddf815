/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that exist either complete or not at all: they are written under a temporary name, and renamed when they are
 * complete.
 */
#ifndef PP_CORE_BASE_NEW_FILE_H
#define PP_CORE_BASE_NEW_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#include "core/base/status.h"

#define PP_NEW_FILE_SUFFIX ".part" /* of temporary names */

struct pp_new_file {
    char path[PATH_MAX];      /* the final name; of a regular file with symbolic links resolved */
    char temporary[PATH_MAX]; /* the temporary name, in the same folder; "": a device or a pipe, written directly */
    int permissions;          /* of the file that it replaces; -1: there is none */
};

/* Chooses both names, and creates nothing. option: such as "--save"; messages begin with it. again: the file is written
 * many times, so its temporary name is always the same, and killed runs leave at most one behind; else the name has the
 * process id. PP_USAGE for folders and for paths that are too long, PP_IO for links that lead in a circle. */
pp_status pp_new_file_choose(const char *option, const char *path, bool again, struct pp_new_file *out) PP_MUST_CHECK;
/* Makes the file that has a temporary name, or empties it, and opens it for writing. It gets the permissions of the
 * file that it replaces at once: whom that is hidden from sees nothing of the new one. A link of that name is not
 * followed. Returns -1 with errno. */
int pp_new_file_open(const struct pp_new_file *file);
/* The same as a stream, or NULL with errno; where there is no temporary name, the device or pipe. */
FILE *pp_new_file_stream(const struct pp_new_file *file);
/* Renames the file, which is complete and closed, and waits until its new name is on the disk. So that its content is
 * there before, the caller calls fsync() before it closes the file. Does nothing if there is no temporary name. Returns
 * 0, or -1 with errno: then the file still has its temporary name; or it has none, and its new name may not be on the
 * disk. */
int pp_new_file_put(struct pp_new_file *file);

/* Why a stream could not be written in full: the text of errno, which the caller has set to 0 before flushing and
 * closing it. If it still is 0, an earlier write has failed, whose reason is lost, and the text says so. */
const char *pp_write_error(void);

#endif
