/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/file_label.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

void pp_file_label(const char *path, uint64_t hash, char *out, size_t size)
{
    const char *slash = strrchr(path, '/'), *from = slash ? slash + 1 : path;
    size_t n = 0;
    for (; from[n] && n < size - sizeof "#5c0e"; n++)
        out[n] = isalnum((unsigned char)from[n]) || strchr("._+-", from[n]) ? from[n] : '_';
    snprintf(out + n, size - n, "#%04x", (unsigned)(hash >> 48));
}
