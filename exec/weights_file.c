/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/weights_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/text.h"

pp_status pp_weights_file_open(const char *path, struct pp_weights_file *out)
{
    struct stat info;
    *out = (struct pp_weights_file){.path = path,
                                    .fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)}; /* a pipe is not waited for */
    if (out->fd < 0 || fstat(out->fd, &info)) return pp_fail(PP_INPUT, "cannot open %s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return pp_fail(PP_INPUT, "%s is not a regular file", path);
    out->bytes = info.st_size;
    return PP_OK;
}

pp_status pp_weights_file_read(const struct pp_weights_file *file, void *to, int64_t bytes, int64_t offset)
{
    for (char *at = to; bytes > 0;) {
        ssize_t got = pread(file->fd, at, (size_t)bytes, offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return pp_fail(PP_IO, "cannot read %s: %s", file->path, strerror(errno));
        if (got == 0) return pp_fail(PP_INPUT, "%s is truncated: it ends at byte %" PRId64, file->path, offset);
        at += got;
        bytes -= got;
        offset += got;
    }
    return PP_OK;
}

/* The length is little-endian. */
static pp_status header_bytes(const struct pp_weights_file *file, size_t *out)
{
    unsigned char length[PP_WEIGHTS_LENGTH_BYTES];
    uint64_t size = 0;
    if (file->bytes < PP_WEIGHTS_LENGTH_BYTES)
        return pp_fail(PP_INPUT, "%s is no safetensors file: only %" PRId64 " byte%s long", file->path, file->bytes,
                       pp_plural(file->bytes));
    PP_TRY(pp_weights_file_read(file, length, PP_WEIGHTS_LENGTH_BYTES, 0));
    for (int i = PP_WEIGHTS_LENGTH_BYTES - 1; i >= 0; i--) size = size << 8 | length[i];
    if (size > PP_WEIGHTS_MOST_HEADER || (int64_t)size > file->bytes - PP_WEIGHTS_LENGTH_BYTES)
        return pp_fail(PP_INPUT,
                       "%s is no safetensors file, or truncated: its header would have %" PRIu64
                       " bytes, the file has %" PRId64,
                       file->path, size, file->bytes);
    *out = size;
    return PP_OK;
}

pp_status pp_weights_file_header(const struct pp_weights_file *file, char **text, size_t *size)
{
    *text = NULL;
    PP_TRY(header_bytes(file, size));
    PP_TRY(PP_NEW(text, *size));
    const pp_status status = pp_weights_file_read(file, *text, (int64_t)*size, PP_WEIGHTS_LENGTH_BYTES);
    if (status == PP_OK) return PP_OK;
    free(*text);
    *text = NULL;
    return status;
}
