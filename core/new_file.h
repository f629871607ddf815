/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that are there whole or not at all: written beside their place, which they take when they are finished.
 */
#ifndef PP_CORE_NEW_FILE_H
#define PP_CORE_NEW_FILE_H

#include <limits.h>
#include <stdbool.h>

#include "core/status.h"

struct pp_new_file {
    char path[PATH_MAX];      /* where it goes: symbolic links resolved */
    char temporary[PATH_MAX]; /* in the same folder, to be renamed; "": a device or a pipe, which is written directly */
};

/* Says where a file is to be written; makes nothing. option, such as "--save", begins the messages. again: it is
 * written again and again, and its temporary name is always the same, so that killed runs leave one at most. PP_USAGE
 * for folders and paths that are too long, PP_IO for links that lead in a circle. */
pp_status pp_new_file_choose(const char *option, const char *path, bool again, struct pp_new_file *out) PP_MUST_CHECK;
/* The name to open. */
const char *pp_new_file_target(const struct pp_new_file *file);

#endif
