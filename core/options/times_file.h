/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether --times gives numbers, "F,I,W[,C]", or names a file of block times, "FILE[,C]", C being a hop.
 */
#ifndef PP_CORE_OPTIONS_TIMES_FILE_H
#define PP_CORE_OPTIONS_TIMES_FILE_H

#include <stddef.h>

/* How many characters of the text of --times are the name of a file; 0: it gives numbers. Texts that begin as a number
 * does give numbers, unless they have other letters, too, and there is a file of that name. A ",C" belongs to the name
 * only if there is a file of the whole name. */
size_t pp_times_file(const char *times);

#endif
