/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <unistd.h>

#include "core/base/hash.h"
#include "exec/weights.h"
#include "exec/weights_file.h"
#include "exec/weights_sums.h"

enum { PAGE = 4096 };

/* Of a file whose header has no checksums. */
static pp_status add_pages(const struct pp_weights_file *file, uint64_t *hash)
{
    char page[PAGE];
    for (int64_t at = 0; at < file->bytes; at += PP_PIECE_BYTES) {
        const int64_t n = file->bytes - at < PAGE ? file->bytes - at : PAGE;
        PP_TRY(pp_weights_file_read(file, page, n, at));
        *hash = pp_hash_bytes(*hash, page, (size_t)n);
    }
    return PP_OK;
}

static pp_status hash_file(const struct pp_weights_file *file, uint64_t *hash)
{
    char *header;
    size_t size;
    PP_TRY(pp_weights_file_header(file, &header, &size));
    *hash = pp_hash_bytes(pp_hash_word(0, (uint64_t)file->bytes), header, size);
    const bool sums = pp_sums_find(header, size);
    free(header);
    return sums ? PP_OK : add_pages(file, hash);
}

pp_status pp_weights_content(const char *path, uint64_t *out)
{
    struct pp_weights_file file;
    *out = 0;
    pp_status status = pp_weights_file_open(path, &file);
    if (status == PP_OK) status = hash_file(&file, out);
    if (file.fd >= 0) close(file.fd);
    return status;
}
