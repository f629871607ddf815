/* SPDX-License-Identifier: Apache-2.0
 *
 * The name under which a user's file (a schedule, a machine) appears in results.
 */
#ifndef PP_CORE_BASE_FILE_LABEL_H
#define PP_CORE_BASE_FILE_LABEL_H

#include <stddef.h>
#include <stdint.h>

/* Writes a label such as "mine.csv#5c0e" to out: the file's name without its folder, cut off to fit into `size` bytes
 * (at least 8), and 16 bits of `hash`, a hash of its content. So two files of the same name, or one file before and
 * after a change, have different labels. Labels stand in tables, scripts and databases: characters other than letters,
 * digits and . _ + - become _. */
void pp_file_label(const char *path, uint64_t hash, char *out, size_t size);

#endif
