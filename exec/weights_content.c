/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/plan/plan_hash.h"
#include "exec/weights.h"
#include "exec/weights_sums.h"

enum { PAGE = 4096, LENGTH_BYTES = 8 };

struct file {
    const char *path;
    int fd;
    int64_t bytes;
    uint64_t hash; /* of what was read */
};

static pp_status add(struct file *f, int64_t at, int64_t n, char *out)
{
    for (int64_t done = 0; done < n;) {
        const ssize_t got = pread(f->fd, out + done, (size_t)(n - done), at + done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return pp_fail(PP_IO, "cannot read %s: %s", f->path, got < 0 ? strerror(errno) : "it was cut");
        done += got;
    }
    for (int64_t i = 0; i < n; i++) f->hash = pp_plan_hash_word(f->hash, (unsigned char)out[i]);
    return PP_OK;
}

/* *sums: does it have the checksums of all tensors? */
static pp_status add_header(struct file *f, bool *sums)
{
    char length[LENGTH_BYTES], *header;
    uint64_t n = 0;
    PP_TRY(add(f, 0, LENGTH_BYTES, length));
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) n = n << 8 | (unsigned char)length[i];
    if (n > (uint64_t)f->bytes - LENGTH_BYTES) return pp_fail(PP_INPUT, "%s is no safetensors file", f->path);
    PP_TRY(PP_NEW(&header, n));
    const pp_status status = add(f, LENGTH_BYTES, (int64_t)n, header);
    *sums = status == PP_OK && pp_sums_find(header, n);
    free(header);
    return status;
}

static pp_status add_file(struct file *f)
{
    struct stat info;
    char page[PAGE];
    bool sums = false;
    if (fstat(f->fd, &info)) return pp_fail(PP_IO, "cannot read %s: %s", f->path, strerror(errno));
    f->bytes = info.st_size;
    f->hash = pp_plan_hash_word(0, (uint64_t)f->bytes);
    PP_TRY(add_header(f, &sums));
    for (int64_t at = 0; !sums && at < f->bytes; at += PP_PIECE_BYTES)
        PP_TRY(add(f, at, f->bytes - at < PAGE ? f->bytes - at : PAGE, page));
    return PP_OK;
}

pp_status pp_weights_content(const char *path, uint64_t *out)
{
    struct file f = {.path = path, .fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
    *out = 0;
    if (f.fd < 0) return pp_fail(PP_INPUT, "cannot open %s: %s", path, strerror(errno));
    const pp_status status = add_file(&f);
    *out = f.hash;
    close(f.fd);
    return status;
}
