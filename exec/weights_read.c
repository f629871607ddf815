/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/weights.h"

enum { MAX_HEADER = 100 << 20 }; /* the limit of the reference implementation */

struct pp_weights_reader {
    char *path;
    int fd;
    int64_t data_start, data_bytes;
    int64_t *begin; /* [model tensors] in the data */
};

/* A tensor as the header has it. */
struct entry {
    const char *name;
    int64_t begin, end;
};

static pp_status read_at(const struct pp_weights_reader *r, void *to, int64_t bytes, int64_t offset)
{
    for (char *at = to; bytes > 0;) {
        ssize_t got = pread(r->fd, at, (size_t)bytes, offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return pp_fail(PP_IO, "cannot read %s: %s", r->path, strerror(errno));
        if (got == 0) return pp_fail(PP_INPUT, "%s is truncated: it ends at byte %" PRId64, r->path, offset);
        at += got;
        bytes -= got;
        offset += got;
    }
    return PP_OK;
}

static pp_status open_file(struct pp_weights_reader *r, int64_t *file_bytes)
{
    struct stat info;
    r->fd = open(r->path, O_RDONLY | O_CLOEXEC);
    if (r->fd < 0 || fstat(r->fd, &info)) return pp_fail(PP_INPUT, "cannot open %s: %s", r->path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return pp_fail(PP_INPUT, "%s is not a regular file", r->path);
    *file_bytes = info.st_size;
    return PP_OK;
}

static pp_status read_header(struct pp_weights_reader *r, json_t **out)
{
    int64_t file_bytes = 0;
    unsigned char size_bytes[8];
    uint64_t size = 0;
    PP_TRY(open_file(r, &file_bytes));
    if (file_bytes < 8)
        return pp_fail(PP_INPUT, "%s is no safetensors file: only %" PRId64 " byte%s long", r->path, file_bytes,
                       pp_plural(file_bytes));
    PP_TRY(read_at(r, size_bytes, 8, 0));
    for (int i = 7; i >= 0; i--) size = size << 8 | size_bytes[i];
    if (size > MAX_HEADER || (int64_t)size > file_bytes - 8)
        return pp_fail(PP_INPUT,
                       "%s is no safetensors file, or truncated: its header would have %" PRIu64
                       " bytes, the file has %" PRId64,
                       r->path, size, file_bytes);
    char *text;
    PP_TRY(PP_NEW(&text, size));
    pp_status status = read_at(r, text, (int64_t)size, 8);
    json_error_t error;
    *out = status == PP_OK ? json_loadb(text, size, JSON_REJECT_DUPLICATES, &error) : NULL;
    free(text);
    if (status == PP_OK && !*out && !error.text[0])
        status = pp_fail(PP_NOMEM, "there is not enough memory to read the header of %s", r->path);
    else if (status == PP_OK && !json_is_object(*out))
        status =
            pp_fail(PP_INPUT, "%s: the header is not a JSON object: %s", r->path, *out ? "another type" : error.text);
    r->data_start = 8 + (int64_t)size;
    r->data_bytes = file_bytes - r->data_start;
    return status;
}

static pp_status parse_entry(const struct pp_weights_reader *r, const char *name, json_t *value, struct entry *out)
{
    json_t *offsets = json_object_get(value, "data_offsets");
    json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    *out = (struct entry){name, json_integer_value(begin), json_integer_value(end)};
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) || out->begin < 0 ||
        out->end < out->begin)
        return pp_fail(PP_INPUT, "%s: tensor '%s' has no valid data_offsets", r->path, name);
    if (out->end > r->data_bytes)
        return pp_fail(PP_INPUT,
                       "%s is truncated: tensor '%s' ends at byte %" PRId64 " of the data, which has %" PRId64, r->path,
                       name, out->end, r->data_bytes);
    return PP_OK;
}

static int by_begin(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Every tensor of the file, known to the model or not: inside the data, and none over another. */
static pp_status check_ranges(const struct pp_weights_reader *r, json_t *header)
{
    struct entry *entries;
    const char *name;
    json_t *value;
    size_t n = 0;
    pp_status status = PP_OK;
    PP_TRY(PP_NEW(&entries, json_object_size(header)));
    json_object_foreach(header, name, value)
    {
        if (strcmp(name, "__metadata__") && status == PP_OK) status = parse_entry(r, name, value, &entries[n++]);
    }
    if (status == PP_OK) qsort(entries, n, sizeof *entries, by_begin);
    for (size_t i = 1; i < n && status == PP_OK; i++)
        if (entries[i].begin < entries[i - 1].end)
            status =
                pp_fail(PP_INPUT, "%s: tensors '%s' and '%s' overlap", r->path, entries[i - 1].name, entries[i].name);
    free(entries);
    return status;
}

static void shape_text(json_t *shape, char *buf, size_t size)
{
    size_t used = 0, i;
    json_t *dimension;
    buf[0] = '\0';
    json_array_foreach(shape, i, dimension)
    {
        if (used + 24 < size)
            used += (size_t)snprintf(buf + used, size - used, "%s%lld", i ? ", " : "",
                                     (long long)json_integer_value(dimension));
    }
}

static bool shape_matches(json_t *shape, const struct pp_tensor *tensor)
{
    if ((int)json_array_size(shape) != tensor->ndim) return false;
    for (int i = 0; i < tensor->ndim; i++)
        if (json_integer_value(json_array_get(shape, (size_t)i)) != tensor->shape[i]) return false;
    return true;
}

#define ASK_FOR_MODEL                                                                                                  \
    "do --layers, --norm, --normalization, --qk-norm, --activation, --bias, --kv-heads, --head-dim, --experts, "       \
    "--shared-ff, --shared-gate, the widths, --vocab, --tie-embeddings, --positions and --max-positions describe the " \
    "model that was saved?"

static pp_status check_tensor(struct pp_weights_reader *r, json_t *header, const struct pp_tensor *tensor,
                              int64_t *begin)
{
    json_t *value = json_object_get(header, tensor->name);
    struct entry entry;
    char have[160], need[64];
    if (!value) return pp_fail(PP_INPUT, "%s has no tensor '%s'; " ASK_FOR_MODEL, r->path, tensor->name);
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    if (!dtype || strcmp(dtype, "F32"))
        return pp_fail(PP_INPUT, "%s: tensor '%s' is of type %s; only F32 is read: save it as float32", r->path,
                       tensor->name, dtype ? dtype : "(none)");
    shape_text(json_object_get(value, "shape"), have, sizeof have);
    snprintf(need, sizeof need, tensor->ndim > 1 ? "%" PRId64 ", %" PRId64 : "%" PRId64, tensor->shape[0],
             tensor->shape[1]);
    if (!shape_matches(json_object_get(value, "shape"), tensor))
        return pp_fail(PP_INPUT, "%s: tensor '%s' has shape [%s], and this model needs [%s]; " ASK_FOR_MODEL, r->path,
                       tensor->name, have, need);
    PP_TRY(parse_entry(r, tensor->name, value, &entry));
    if (entry.end - entry.begin != tensor->elements * (int64_t)sizeof(float))
        return pp_fail(PP_INPUT, "%s: tensor '%s' has %" PRId64 " bytes where its shape needs %" PRId64, r->path,
                       tensor->name, entry.end - entry.begin, tensor->elements * (int64_t)sizeof(float));
    *begin = entry.begin;
    return PP_OK;
}

static pp_status check_no_other(const struct pp_weights_reader *r, json_t *header, const struct pp_model *model)
{
    const char *name;
    json_t *value;
    json_object_foreach(header, name, value)
    {
        bool known = !strcmp(name, "__metadata__");
        for (int i = 0; i < model->ntensors && !known; i++)
            known = !model->tensors[i].copy && !strcmp(name, model->tensors[i].name);
        if (known) continue;
        const bool checkpoint = json_object_get(json_object_get(header, "__metadata__"), PP_NOTE_CHECKPOINT) != NULL;
        return pp_fail(PP_INPUT, "%s has a tensor '%s' that this model does not have; %s", r->path, name,
                       checkpoint ? "it is a checkpoint of --save-every, with more than the weights: --resume goes on "
                                    "from it, and --save writes weights alone"
                                  : ASK_FOR_MODEL);
    }
    return PP_OK;
}

static pp_status check_file(struct pp_weights_reader *r, const struct pp_model *model)
{
    json_t *header = NULL;
    pp_status status;
    PP_TRY_DONE(read_header(r, &header));
    PP_TRY_DONE(check_ranges(r, header));
    for (int i = 0; i < model->ntensors; i++)
        if (!model->tensors[i].copy) PP_TRY_DONE(check_tensor(r, header, &model->tensors[i], &r->begin[i]));
    PP_TRY_DONE(check_no_other(r, header, model));
    int64_t spare = r->data_bytes - model->parameters * (int64_t)sizeof(float);
    if (spare != 0)
        status = pp_fail(PP_INPUT, "%s has %" PRId64 " byte%s that belong%s to no tensor: it is damaged", r->path,
                         spare, pp_plural(spare), spare == 1 ? "s" : "");
done:
    json_decref(header);
    return status;
}

/* What is no text, or does not fit, was written by somebody else and means nothing here. */
static void take_notes(json_t *header, struct pp_notes *out)
{
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(header, "__metadata__"), name, value)
    {
        if (json_is_string(value)) pp_notes_add(out, name, json_string_value(value));
    }
}

pp_status pp_weights_notes(const char *path, struct pp_notes *out)
{
    struct pp_weights_reader r = {.fd = -1, .path = strdup(path)};
    json_t *header = NULL;
    out->n = 0;
    out->overfull = false;
    pp_status status = r.path ? read_header(&r, &header) : pp_fail(PP_NOMEM, "cannot allocate memory for a file name");
    if (status == PP_OK) take_notes(header, out);
    json_decref(header);
    if (r.fd >= 0) close(r.fd);
    free(r.path);
    return status;
}

pp_status pp_weights_open(const char *path, const struct pp_model *model, struct pp_weights_reader **out)
{
    struct pp_weights_reader *r;
    *out = NULL;
    PP_TRY(PP_NEW(&r, 1));
    r->fd = -1;
    r->path = strdup(path);
    pp_status status =
        r->path ? PP_NEW(&r->begin, model->ntensors) : pp_fail(PP_NOMEM, "cannot allocate memory for a file name");
    if (status == PP_OK) status = check_file(r, model);
    if (status == PP_OK)
        *out = r;
    else
        pp_weights_close(r);
    return status;
}

pp_status pp_weights_read(struct pp_weights_reader *r, int tensor, int64_t first, int64_t n, float *out)
{
    int64_t size = sizeof(float);
    return read_at(r, out, n * size, r->data_start + r->begin[tensor] + first * size);
}

void pp_weights_close(struct pp_weights_reader *r)
{
    if (!r) return;
    if (r->fd >= 0) close(r->fd);
    free(r->begin);
    free(r->path);
    free(r);
}
