/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/new_file.h"
#include "core/job/rows.h"
#include "exec/signals.h"
#include "exec/weights.h"
#include "exec/weights_sums.h"

struct pp_weights_writer {
    struct pp_new_file file;
    int fd;
    char *header; /* JSON, with blanks behind it */
    size_t header_bytes;
    char *digits;          /* of the checksums, in `header`; NULL: the file has none */
    int64_t *piece_end;    /* [pieces] bytes of data up to the end of each */
    int64_t pieces, piece; /* all; those that are complete */
    int64_t written;       /* bytes of data */
    uint32_t sum;          /* of the piece that is under way */
    bool odd;              /* one of the values so far is not a finite number */
};

void pp_notes_add(struct pp_notes *notes, const char *name, const char *value)
{
    if (notes->n == PP_NOTES || strlen(name) >= PP_NOTE_NAME || strlen(value) >= PP_NOTE_VALUE) {
        notes->overfull = true;
        return;
    }
    struct pp_note *note = &notes->v[notes->n++];
    strcpy(note->name, name);
    strcpy(note->value, value);
}

pp_status pp_notes_check(const struct pp_notes *notes)
{
    if (!notes->overfull) return PP_OK;
    return pp_fail(PP_INTERNAL,
                   "a checkpoint has room for %d notes, names of %d bytes and values of %d: raise PP_NOTES", PP_NOTES,
                   PP_NOTE_NAME - 1, PP_NOTE_VALUE - 1);
}

const char *pp_notes_find(const struct pp_notes *notes, const char *name)
{
    for (int i = 0; i < notes->n; i++)
        if (strcmp(notes->v[i].name, name) == 0) return notes->v[i].value;
    return NULL;
}

static pp_status failed(const struct pp_weights_writer *w, const char *what)
{
    return pp_fail(PP_IO, "--save: cannot %s %s: %s", what, w->file.path, strerror(errno));
}

/* Whoever reads a pipe may take any time, or never begin: only a signal ends that. */
static pp_status wait_for_reader(const struct pp_weights_writer *w)
{
    enum { LOOK_MS = 100 };
    struct pollfd place = {.fd = w->fd, .events = POLLOUT}; /* -1, not yet open: poll() waits all the same */
    poll(&place, 1, LOOK_MS);
    if (!pp_signals_caught()) return PP_OK;
    return pp_fail(PP_INTERRUPTED, "stopped by a signal, while --save waited for a reader of %s", w->file.path);
}

/* As write(), but a reader that has gone away is an error, EPIPE, and not a signal that ends the process unsaid. */
static ssize_t write_or_fail(int fd, const void *from, size_t bytes)
{
    static const struct timespec at_once = {0};
    sigset_t pipe, before;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    const ssize_t put = write(fd, from, bytes);
    const int error = errno;
    if (put < 0 && error == EPIPE) sigtimedwait(&pipe, NULL, &at_once);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return put;
}

static pp_status write_bytes(struct pp_weights_writer *w, const void *from, size_t bytes)
{
    for (const char *at = from; bytes > 0;) {
        ssize_t put = write_or_fail(w->fd, at, bytes);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && errno == EAGAIN) {
            PP_TRY(wait_for_reader(w));
            continue;
        }
        if (put < 0) return failed(w, "write");
        at += put;
        bytes -= (size_t)put;
    }
    return PP_OK;
}

/* NULL where memory is short, never a part of it: a header that lacks a tensor would be a spoilt file. */
static json_t *make_entry(const struct pp_tensor *tensor, int64_t begin, int64_t end)
{
    json_t *shape = json_array();
    bool whole = true;
    for (int d = 0; d < tensor->ndim; d++)
        whole = json_array_append_new(shape, json_integer(tensor->shape[d])) == 0 && whole;
    if (whole)
        return json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape, "data_offsets", (json_int_t)begin,
                         (json_int_t)end);
    json_decref(shape);
    return NULL;
}

/* Zeros, which the checksums replace in the end. */
static json_t *make_room_for_sums(int64_t pieces)
{
    char *zeros;
    const size_t digits = PP_SUM_DIGITS * (size_t)(1 + pieces);
    if (PP_NEW(&zeros, digits) != PP_OK) return NULL;
    memset(zeros, '0', digits);
    json_t *room = json_stringn(zeros, digits);
    free(zeros);
    return room;
}

/* Only a regular file can be written at the place of its header once more. */
static bool has_sums(const struct pp_weights_writer *w) { return *w->file.temporary != '\0'; }

static json_t *make_metadata(const struct pp_weights_writer *w, const struct pp_notes *notes)
{
    json_t *metadata = json_pack("{s:s}", PP_NOTE_FORMAT, "pt");
    bool whole = metadata != NULL;
    if (whole && has_sums(w)) whole = json_object_set_new(metadata, PP_NOTE_SUMS, make_room_for_sums(w->pieces)) == 0;
    for (int i = 0; notes && i < notes->n && whole; i++)
        whole = json_object_set_new(metadata, notes->v[i].name, json_string(notes->v[i].value)) == 0;
    if (whole) return metadata;
    json_decref(metadata);
    return NULL;
}

static json_t *make_header(const struct pp_weights_writer *w, const struct pp_model *model,
                           const struct pp_notes *notes)
{
    json_t *header = json_object();
    bool whole = json_object_set_new(header, "__metadata__", make_metadata(w, notes)) == 0;
    int64_t offset = 0;
    for (int i = 0; i < model->ntensors && whole; i++) {
        const struct pp_tensor *tensor = &model->tensors[i];
        if (tensor->copy) continue;
        int64_t end = offset + tensor->elements * (int64_t)sizeof(float);
        whole = json_object_set_new(header, tensor->name, make_entry(tensor, offset, end)) == 0;
        offset = end;
    }
    if (whole) return header;
    json_decref(header);
    return NULL;
}

static pp_status cut_into_pieces(struct pp_weights_writer *w, const struct pp_model *model)
{
    int64_t end = 0;
    for (int i = 0; i < model->ntensors; i++)
        if (!model->tensors[i].copy) w->pieces += pp_pieces(model->tensors[i].elements * (int64_t)sizeof(float));
    PP_TRY(PP_NEW(&w->piece_end, w->pieces));
    int64_t piece = 0;
    for (int i = 0; i < model->ntensors; i++) {
        if (model->tensors[i].copy) continue;
        for (int64_t left = model->tensors[i].elements * (int64_t)sizeof(float); left > 0; left -= PP_PIECE_BYTES) {
            end += left < PP_PIECE_BYTES ? left : PP_PIECE_BYTES;
            w->piece_end[piece++] = end;
        }
    }
    return PP_OK;
}

/* Keeps the header until the checksums are known. Blanks bring the tensors to a multiple of 8 bytes. */
static pp_status keep_header(struct pp_weights_writer *w, const char *text)
{
    const size_t length = strlen(text);
    w->header_bytes = (length + 7) / 8 * 8;
    PP_TRY(PP_NEW(&w->header, w->header_bytes));
    memset(w->header, ' ', w->header_bytes);
    memcpy(w->header, text, length);
    if (has_sums(w)) w->digits = pp_sums_find(w->header, w->header_bytes);
    return PP_OK;
}

static pp_status write_header(struct pp_weights_writer *w, const struct pp_model *model, const struct pp_notes *notes)
{
    unsigned char size[8];
    char *text;
    PP_TRY(cut_into_pieces(w, model));
    json_t *header = make_header(w, model, notes);
    pp_status status = pp_prefix(pp_json_dump(header, JSON_COMPACT, &text), "the header of %s", w->file.path);
    json_decref(header);
    if (status != PP_OK) return status;
    status = keep_header(w, text);
    free(text);
    for (int i = 0; i < 8; i++) size[i] = (unsigned char)((uint64_t)w->header_bytes >> 8 * i);
    if (status == PP_OK) status = write_bytes(w, size, sizeof size);
    return status == PP_OK ? write_bytes(w, w->header, w->header_bytes) : status;
}

/* A pipe can be opened when somebody reads it. */
static pp_status open_directly(struct pp_weights_writer *w)
{
    for (bool told = false;; told = true) {
        struct stat info;
        w->fd = open(w->file.path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        if (w->fd >= 0) return PP_OK;
        if (errno != ENXIO || stat(w->file.path, &info) != 0 || !S_ISFIFO(info.st_mode)) return failed(w, "create");
        if (!told) pp_info("--save waits for a program that reads the pipe %s", w->file.path);
        PP_TRY(wait_for_reader(w));
    }
}

static pp_status open_place(struct pp_weights_writer *w)
{
    if (!*w->file.temporary) return open_directly(w);
    w->fd = pp_new_file_open(&w->file);
    if (w->fd >= 0) return PP_OK;
    const pp_status status = failed(w, "create");
    w->file.temporary[0] = '\0'; /* it is not this writer's */
    return status;
}

/* Profiles and results of weeks are in one, and the name is soon mistyped. */
static pp_status check_no_database(const char *path)
{
    static const char mark[] = "SQLite format 3"; /* with its terminating 0 */
    char begin[sizeof mark] = "";
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return PP_OK;
    const bool database = read(fd, begin, sizeof begin) == sizeof begin && memcmp(begin, mark, sizeof mark) == 0;
    close(fd);
    if (!database) return PP_OK;
    return pp_fail(PP_USAGE, "--save: %s is a database, which weights would replace; name another file", path);
}

pp_status pp_weights_check_target(const char *path, bool again)
{
    struct pp_weights_writer w = {.fd = -1};
    PP_TRY(pp_new_file_choose("--save", path, again, &w.file));
    if (*w.file.temporary) PP_TRY(check_no_database(w.file.path));
    if (!*w.file.temporary) return access(w.file.path, W_OK) ? failed(&w, "create") : PP_OK;
    const int fd = pp_new_file_open(&w.file);
    if (fd < 0) return failed(&w, "create");
    close(fd);
    return unlink(w.file.temporary) ? failed(&w, "create") : PP_OK;
}

pp_status pp_weights_create(const char *path, const struct pp_model *model, const struct pp_notes *notes,
                            struct pp_weights_writer **out)
{
    struct pp_weights_writer *w;
    *out = NULL;
    if (notes) PP_TRY(pp_notes_check(notes));
    PP_TRY(PP_NEW(&w, 1));
    w->fd = -1;
    pp_status status = pp_new_file_choose("--save", path, notes != NULL, &w->file);
    if (status == PP_OK) status = open_place(w);
    if (status == PP_OK) status = write_header(w, model, notes);
    if (status == PP_OK)
        *out = w;
    else
        pp_weights_discard(w);
    return status;
}

static bool are_finite(const float *values, int64_t n)
{
    bool finite = true;
    for (int64_t i = 0; i < n; i++) finite &= fabsf(values[i]) <= FLT_MAX; /* no branch: the loop is of vectors */
    return finite;
}

bool pp_weights_finite(const struct pp_weights_writer *w) { return !w->odd; }

/* Each piece is written as soon as its checksum is made: it is in the cache then. */
pp_status pp_weights_append(struct pp_weights_writer *w, const float *values, int64_t n)
{
    w->odd |= !are_finite(values, n);
    const char *at = (const char *)values;
    int64_t left = n * (int64_t)sizeof *values;
    while (left > 0) {
        if (w->piece == w->pieces) return pp_fail(PP_INTERNAL, "%s: more values than the tensors have", w->file.path);
        const int64_t room = w->piece_end[w->piece] - w->written, bytes = left < room ? left : room;
        if (w->digits) w->sum = pp_sum_add(w->sum, at, (size_t)bytes);
        PP_TRY(write_bytes(w, at, (size_t)bytes));
        w->written += bytes;
        at += bytes;
        left -= bytes;
        if (bytes < room) continue;
        w->piece++;
        if (w->digits) pp_sum_write(w->sum, w->digits + PP_SUM_DIGITS * w->piece);
        w->sum = 0;
    }
    return PP_OK;
}

static pp_status write_sums(struct pp_weights_writer *w)
{
    if (!w->digits) return PP_OK;
    pp_sum_write(pp_sum_of_header(w->header, w->header_bytes, w->digits), w->digits);
    if (lseek(w->fd, 8 + (w->digits - w->header), SEEK_SET) < 0) return failed(w, "write");
    return write_bytes(w, w->digits, PP_SUM_DIGITS * (size_t)(1 + w->pieces));
}

static pp_status put_in_place(struct pp_weights_writer *w)
{
    if (*w->file.temporary && fsync(w->fd)) return failed(w, "write");
    int fd = w->fd;
    w->fd = -1;
    if (close(fd)) return failed(w, "write");
    return pp_new_file_put(&w->file) ? failed(w, "create") : PP_OK;
}

pp_status pp_weights_commit(struct pp_weights_writer *w)
{
    pp_status status = w->piece == w->pieces
                           ? write_sums(w)
                           : pp_fail(PP_INTERNAL, "%s: fewer values than the tensors have", w->file.path);
    if (status == PP_OK) status = put_in_place(w);
    pp_weights_discard(w);
    return status;
}

void pp_weights_discard(struct pp_weights_writer *w)
{
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    if (*w->file.temporary) unlink(w->file.temporary);
    free(w->header);
    free(w->piece_end);
    free(w);
}
