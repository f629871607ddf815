/* SPDX-License-Identifier: Apache-2.0
 *
 * What results call a file of the user's (a schedule, a machine).
 */
#ifndef PP_CORE_FILE_LABEL_H
#define PP_CORE_FILE_LABEL_H

#include <stddef.h>
#include <stdint.h>

/* "mine.csv#5c0e": the file's name without its folder, cut to what `size` bytes have room for (8 at least), and 16 bits
 * of a hash of what it says. So files of one name in two folders, or before and after a change, are two. It goes into
 * tables, scripts and databases: characters other than letters, digits and . _ + - become _. */
void pp_file_label(const char *path, uint64_t hash, char *out, size_t size);

#endif
