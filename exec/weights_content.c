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

/* Hashes up to n bytes at a place; fewer where the file ends before. */
static pp_status add_bytes(int fd, const char *path, int64_t at, int64_t n, uint64_t *hash)
{
    char page[PAGE];
    for (int64_t end = at + n; at < end;) {
        const ssize_t got = pread(fd, page, (size_t)(end - at < PAGE ? end - at : PAGE), at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return pp_fail(PP_IO, "cannot read %s: %s", path, strerror(errno));
        if (got == 0) break;
        for (ssize_t i = 0; i < got; i++) *hash = pp_plan_hash_word(*hash, (unsigned char)page[i]);
        at += got;
    }
    return PP_OK;
}

static int64_t header_bytes(int fd)
{
    unsigned char length[LENGTH_BYTES] = {0};
    int64_t n = 0;
    if (pread(fd, length, sizeof length, 0) != (ssize_t)sizeof length) return 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) n = n << 8 | length[i];
    return n;
}

static pp_status add_file(int fd, const char *path, bool sums, uint64_t *hash)
{
    struct stat info;
    if (fstat(fd, &info)) return pp_fail(PP_IO, "cannot read %s: %s", path, strerror(errno));
    *hash = pp_plan_hash_word(*hash, (uint64_t)info.st_size);
    PP_TRY(add_bytes(fd, path, 0, LENGTH_BYTES + header_bytes(fd), hash));
    for (int64_t at = 0; !sums && at < info.st_size; at += PP_PIECE_BYTES) PP_TRY(add_bytes(fd, path, at, PAGE, hash));
    return PP_OK;
}

pp_status pp_weights_content(const char *path, bool sums, uint64_t *out)
{
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    *out = 0;
    if (fd < 0) return pp_fail(PP_INPUT, "cannot open %s: %s", path, strerror(errno));
    const pp_status status = add_file(fd, path, sums, out);
    close(fd);
    return status;
}
