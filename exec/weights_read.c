/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/text.h"
#include "core/options/config.h"
#include "exec/weights.h"
#include "exec/weights_file.h"
#include "exec/weights_sums.h"

/* A tensor of the model in the file. */
struct place {
    int64_t begin, bytes; /* in the data; bytes 0 also of a tensor that is a copy and stands in no file */
    int64_t first_piece;  /* pieces of the tensors before it in the file */
    char name[sizeof((struct pp_tensor *)0)->name];
};

struct pp_weights_reader {
    char *path;
    struct pp_weights_file file;
    int64_t data_start, data_bytes;
    int ntensors;
    struct place *places; /* [ntensors] as in the model */
    uint32_t *sums;       /* [pieces] in the order of the file; NULL: the file has no checksums */
    char *piece;          /* [PP_PIECE_BYTES] */
    int piece_tensor;     /* whose piece it is; -1: none yet */
    int64_t piece_begin;  /* where it begins in that tensor, in bytes */
};

/* A tensor as the header has it. */
struct entry {
    const char *name;
    int64_t begin, end;
};

#define DAMAGED "damaged; take another copy of the file, or do without it"

static bool names_sums(json_t *header)
{
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(header, "__metadata__"), name, value)
    {
        if (pp_sums_are_named(name)) return true;
    }
    return false;
}

/* The sum of a header that names checksums. A file without them is as good as it looks. */
static pp_status check_header_sum(const struct pp_weights_reader *r, json_t *header, char *text, size_t n)
{
    uint32_t sum;
    if (!names_sums(header)) return PP_OK;
    const char *digits = pp_sums_find(text, n);
    if (digits && pp_sum_parse(digits, &sum) == PP_OK && sum == pp_sum_of_header(text, n, digits)) return PP_OK;
    return pp_fail(PP_INPUT,
                   "%s: the header has not the checksum that it was written with, so the file is " DAMAGED
                   " (if a program has changed it on purpose, let it leave out '" PP_NOTE_SUMS "' of __metadata__)",
                   r->path);
}

static pp_status parse_header(const struct pp_weights_reader *r, char *text, size_t size, json_t **out)
{
    json_error_t error;
    *out = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!*out && !error.text[0])
        return pp_fail(PP_NOMEM, "there is not enough memory to read the header of %s", r->path);
    if (!json_is_object(*out))
        return pp_fail(PP_INPUT, "%s: the header is not a JSON object: %s", r->path,
                       *out ? "another type" : error.text);
    return check_header_sum(r, *out, text, size);
}

static pp_status read_header(struct pp_weights_reader *r, json_t **out)
{
    char *text;
    size_t size;
    PP_TRY(pp_weights_file_open(r->path, &r->file));
    PP_TRY(pp_weights_file_header(&r->file, &text, &size));
    const pp_status status = parse_header(r, text, size, out);
    free(text);
    r->data_start = PP_WEIGHTS_LENGTH_BYTES + (int64_t)size;
    r->data_bytes = r->file.bytes - r->data_start;
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
    struct pp_text text = pp_text_in(buf, size);
    for (size_t i = 0; i < json_array_size(shape); i++)
        pp_text_add(&text, "%s%" PRId64, i ? ", " : "", (int64_t)json_integer_value(json_array_get(shape, i)));
}

static bool shape_matches(json_t *shape, const struct pp_tensor *tensor)
{
    if ((int)json_array_size(shape) != tensor->ndim) return false;
    for (int i = 0; i < tensor->ndim; i++)
        if (json_integer_value(json_array_get(shape, (size_t)i)) != tensor->shape[i]) return false;
    return true;
}

enum { QUESTION = 600 };

/* Asks for the options by which another model's tensors would be those of the file. */
static const char *ask_for_model(char buf[QUESTION])
{
    struct pp_text text = pp_text_in(buf, QUESTION);
    const char *before = "do these options describe the model that was saved: ";
    for (int i = 0; i < pp_config_nrows; i++) {
        if (!(pp_config_rows[i].traits & PP_OPT_TENSORS)) continue;
        pp_text_add(&text, "%s--%s", before, pp_config_rows[i].name);
        before = ", ";
    }
    pp_text_add(&text, "?");
    return buf;
}

static pp_status check_tensor(struct pp_weights_reader *r, json_t *header, const struct pp_tensor *tensor,
                              struct place *place)
{
    json_t *value = json_object_get(header, tensor->name);
    struct entry entry;
    char have[160], need[64], question[QUESTION];
    if (!value) return pp_fail(PP_INPUT, "%s has no tensor '%s'; %s", r->path, tensor->name, ask_for_model(question));
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    if (!dtype || strcmp(dtype, "F32"))
        return pp_fail(PP_INPUT, "%s: tensor '%s' is of type %s; only F32 is read: save it as float32", r->path,
                       tensor->name, dtype ? dtype : "(none)");
    shape_text(json_object_get(value, "shape"), have, sizeof have);
    snprintf(need, sizeof need, tensor->ndim > 1 ? "%" PRId64 ", %" PRId64 : "%" PRId64, tensor->shape[0],
             tensor->shape[1]);
    if (!shape_matches(json_object_get(value, "shape"), tensor))
        return pp_fail(PP_INPUT, "%s: tensor '%s' has shape [%s], and this model needs [%s]; %s", r->path, tensor->name,
                       have, need, ask_for_model(question));
    PP_TRY(parse_entry(r, tensor->name, value, &entry));
    if (entry.end - entry.begin != tensor->elements * (int64_t)sizeof(float))
        return pp_fail(PP_INPUT, "%s: tensor '%s' has %" PRId64 " bytes where its shape needs %" PRId64, r->path,
                       tensor->name, entry.end - entry.begin, tensor->elements * (int64_t)sizeof(float));
    *place = (struct place){.begin = entry.begin, .bytes = entry.end - entry.begin};
    snprintf(place->name, sizeof place->name, "%s", tensor->name);
    return PP_OK;
}

static pp_status check_no_other(const struct pp_weights_reader *r, json_t *header, const struct pp_model *model)
{
    const char *name;
    json_t *value;
    char question[QUESTION];
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
                                  : ask_for_model(question));
    }
    return PP_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct place *const *x = a, *const *y = b;
    return ((*x)->begin > (*y)->begin) - ((*x)->begin < (*y)->begin);
}

/* Pieces are counted in the order of the file, which may be another than the model's. */
static pp_status count_pieces(struct pp_weights_reader *r, int64_t *pieces)
{
    struct place **sorted;
    PP_TRY(PP_NEW(&sorted, r->ntensors));
    for (int i = 0; i < r->ntensors; i++) sorted[i] = &r->places[i];
    qsort(sorted, (size_t)r->ntensors, sizeof *sorted, by_place);
    *pieces = 0;
    for (int i = 0; i < r->ntensors; i++) {
        sorted[i]->first_piece = *pieces;
        *pieces += pp_pieces(sorted[i]->bytes);
    }
    free(sorted);
    return PP_OK;
}

/* The checksums of the tensors, all of which are known. */
static pp_status take_sums(struct pp_weights_reader *r, json_t *header)
{
    json_t *note = json_object_get(json_object_get(header, "__metadata__"), PP_NOTE_SUMS);
    int64_t pieces;
    if (!note) return PP_OK;
    PP_TRY(count_pieces(r, &pieces));
    if (json_string_length(note) != PP_SUM_DIGITS * (size_t)(1 + pieces))
        return pp_fail(PP_INPUT, "%s has not as many checksums as its tensors have pieces: it is " DAMAGED, r->path);
    PP_TRY(PP_NEW(&r->sums, pieces));
    for (int64_t i = 0; i < pieces; i++)
        PP_TRY(pp_prefix(pp_sum_parse(json_string_value(note) + PP_SUM_DIGITS * (1 + i), &r->sums[i]), "%s", r->path));
    return PP_OK;
}

static pp_status check_file(struct pp_weights_reader *r, const struct pp_model *model)
{
    json_t *header = NULL;
    pp_status status;
    PP_TRY_DONE(read_header(r, &header));
    PP_TRY_DONE(check_ranges(r, header));
    for (int i = 0; i < model->ntensors; i++)
        if (!model->tensors[i].copy) PP_TRY_DONE(check_tensor(r, header, &model->tensors[i], &r->places[i]));
    PP_TRY_DONE(check_no_other(r, header, model));
    int64_t spare = r->data_bytes - model->parameters * (int64_t)sizeof(float);
    if (spare != 0)
        status = pp_fail(PP_INPUT, "%s has %" PRId64 " byte%s that belong%s to no tensor: it is damaged", r->path,
                         spare, pp_plural(spare), spare == 1 ? "s" : "");
    else
        status = take_sums(r, header);
done:
    json_decref(header);
    return status;
}

/* All but the notes that every file has. What is no text, or does not fit, was written by another program, and means
 * nothing here. */
static void take_notes(json_t *header, struct pp_notes *out)
{
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(header, "__metadata__"), name, value)
    {
        const bool of_file = strcmp(name, PP_NOTE_FORMAT) == 0 || strcmp(name, PP_NOTE_SUMS) == 0;
        if (json_is_string(value) && !of_file) pp_notes_add(out, name, json_string_value(value));
    }
}

pp_status pp_weights_notes(const char *path, struct pp_notes *out)
{
    struct pp_weights_reader r = {.file = {.fd = -1}, .path = strdup(path)};
    json_t *header = NULL;
    out->n = 0;
    out->overfull = false;
    pp_status status = r.path ? read_header(&r, &header) : pp_fail(PP_NOMEM, "cannot allocate memory for a file name");
    if (status == PP_OK) take_notes(header, out);
    json_decref(header);
    if (r.file.fd >= 0) close(r.file.fd);
    free(r.path);
    return status;
}

pp_status pp_weights_open(const char *path, const struct pp_model *model, struct pp_weights_reader **out)
{
    struct pp_weights_reader *r;
    *out = NULL;
    PP_TRY(PP_NEW(&r, 1));
    *r = (struct pp_weights_reader){
        .file = {.fd = -1}, .ntensors = model->ntensors, .piece_tensor = -1, .path = strdup(path)};
    pp_status status =
        r->path ? PP_NEW(&r->places, model->ntensors) : pp_fail(PP_NOMEM, "cannot allocate memory for a file name");
    if (status == PP_OK) status = PP_NEW(&r->piece, PP_PIECE_BYTES);
    if (status == PP_OK) status = check_file(r, model);
    if (status == PP_OK)
        *out = r;
    else
        pp_weights_close(r);
    return status;
}

bool pp_weights_has_sums(const struct pp_weights_reader *r) { return r->sums != NULL; }

/* Reads the piece of a tensor that begins at a byte of it, and checks it. */
static pp_status take_piece(struct pp_weights_reader *r, int tensor, int64_t begin)
{
    const struct place *place = &r->places[tensor];
    const int64_t left = place->bytes - begin, bytes = left < PP_PIECE_BYTES ? left : PP_PIECE_BYTES,
                  at = r->data_start + place->begin + begin;
    if (r->piece_tensor == tensor && r->piece_begin == begin) return PP_OK;
    r->piece_tensor = -1;
    PP_TRY(pp_weights_file_read(&r->file, r->piece, bytes, at));
    if (r->sums && pp_sum_add(0, r->piece, (size_t)bytes) != r->sums[place->first_piece + begin / PP_PIECE_BYTES])
        return pp_fail(PP_INPUT,
                       "%s: tensor '%s' has not the checksum that it was written with (in bytes %" PRId64 " to %" PRId64
                       " of the file), so the file is " DAMAGED,
                       r->path, place->name, at, at + bytes - 1);
    r->piece_tensor = tensor;
    r->piece_begin = begin;
    return PP_OK;
}

pp_status pp_weights_read(struct pp_weights_reader *r, int tensor, int64_t first, int64_t n, float *out)
{
    char *to = (char *)out;
    int64_t at = first * (int64_t)sizeof *out, left = n * (int64_t)sizeof *out;
    while (left > 0) {
        const int64_t inside = at % PP_PIECE_BYTES, rest = PP_PIECE_BYTES - inside, bytes = left < rest ? left : rest;
        PP_TRY(take_piece(r, tensor, at - inside));
        memcpy(to, r->piece + inside, (size_t)bytes);
        to += bytes;
        at += bytes;
        left -= bytes;
    }
    return PP_OK;
}

void pp_weights_close(struct pp_weights_reader *r)
{
    if (!r) return;
    if (r->file.fd >= 0) close(r->file.fd);
    free(r->sums);
    free(r->piece);
    free(r->places);
    free(r->path);
    free(r);
}
