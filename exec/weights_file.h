/* SPDX-License-Identifier: Apache-2.0
 *
 * A safetensors file as bytes: what its readers share.
 */
#ifndef PP_EXEC_WEIGHTS_FILE_H
#define PP_EXEC_WEIGHTS_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

/* The header begins behind its length. A longer one is refused, as by the reference implementation. */
enum { PP_WEIGHTS_LENGTH_BYTES = 8, PP_WEIGHTS_MOST_HEADER = 100 << 20 };

struct pp_weights_file {
    const char *path; /* borrowed */
    int fd;           /* -1: not open */
    int64_t bytes;
};

/* PP_INPUT if it cannot be opened, or is no regular file. out->fd is set in any case; the caller closes it. */
pp_status pp_weights_file_open(const char *path, struct pp_weights_file *out) PP_MUST_CHECK;
/* PP_INPUT if the file ends before that, PP_IO. */
pp_status pp_weights_file_read(const struct pp_weights_file *file, void *to, int64_t bytes,
                               int64_t offset) PP_MUST_CHECK;
/* Reads the header; the caller frees *text, which does not end with a 0. PP_INPUT if the file has none, PP_IO. */
pp_status pp_weights_file_header(const struct pp_weights_file *file, char **text, size_t *size) PP_MUST_CHECK;

#endif
