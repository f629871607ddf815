/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in safetensors files: 8 bytes length of the header (little-endian), the header in JSON, the tensors. Names
 * and shapes are PyTorch's (docs/FORMATS.md), float32.
 */
#ifndef PP_EXEC_WEIGHTS_H
#define PP_EXEC_WEIGHTS_H

#include <stdint.h>

#include "core/model/model.h"

/* Texts in the metadata of a file. */
enum { PP_NOTE_NAME = 48, PP_NOTE_VALUE = 640, PP_NOTES = 128 };
struct pp_note {
    char name[PP_NOTE_NAME], value[PP_NOTE_VALUE];
};
struct pp_notes {
    int n;
    bool overfull; /* one did not fit and was left out: what writes or compares them refuses */
    struct pp_note v[PP_NOTES];
};

#define PP_NOTE_CHECKPOINT "ppkit checkpoint" /* the note that every checkpoint has (exec/restart.h) */
#define PP_NOTE_FORMAT "format"               /* "pt" in every file: PyTorch's names */

void pp_notes_add(struct pp_notes *notes, const char *name, const char *value);
/* PP_INTERNAL where some did not fit. */
pp_status pp_notes_check(const struct pp_notes *notes) PP_MUST_CHECK;
/* NULL where there is none of that name. */
const char *pp_notes_find(const struct pp_notes *notes, const char *name);

struct pp_weights_reader;
struct pp_weights_writer;

/* Opens a file and checks its header against the model: every tensor is there, with its shape, and no other tensor; the
 * header has its checksum, where the file has checksums. PP_INPUT names what is wrong. The model is not kept. */
pp_status pp_weights_open(const char *path, const struct pp_model *model, struct pp_weights_reader **out) PP_MUST_CHECK;
/* Did the writer store checksums? Files of other programs have none. */
bool pp_weights_has_sums(const struct pp_weights_reader *reader);
/* Elements first .. first+n-1 of a tensor (index in the model). Reads whole pieces (exec/weights_sums.h), and keeps the
 * last one. PP_INPUT names the tensor where a piece has not its checksum. */
pp_status pp_weights_read(struct pp_weights_reader *reader, int tensor, int64_t first, int64_t n,
                          float *out) PP_MUST_CHECK;
void pp_weights_close(struct pp_weights_reader *reader); /* NULL is fine */
/* The texts in a file's metadata, but for its format and checksums; the tensors are not looked at. */
pp_status pp_weights_notes(const char *path, struct pp_notes *out) PP_MUST_CHECK;

/* A number for what a safetensors file holds: equal files have equal numbers, so processes can compare what each has
 * read. Of a file with checksums it is made of the header, which holds them; of another one also of a page of each MiB,
 * for all of it would take as long as reading the weights: a difference elsewhere is not seen. PP_INPUT, PP_IO. */
pp_status pp_weights_content(const char *path, uint64_t *out) PP_MUST_CHECK;

/* PP_IO if no file can be made at `path`, PP_USAGE if there is a database: known before the training rather than after
 * it. It makes the temporary file that pp_weights_create() would, and removes it. again: with notes. */
pp_status pp_weights_check_target(const char *path, bool again) PP_MUST_CHECK;
/* Begins a file. A regular file is written beside its place and takes it in pp_weights_commit(), so there is never half
 * a file. Anything else (a device, a pipe) is written directly, and has no checksums: they stand in the header, and are
 * known when all else is written. For a pipe this call waits until somebody reads it, and pp_weights_append() until it
 * has been read; PP_INTERRUPTED where a signal asks to stop meanwhile (exec/signals.h). notes: NULL, or those of a file
 * that is written again and again: its name meanwhile is always the same, so that killed runs leave one at most. */
pp_status pp_weights_create(const char *path, const struct pp_model *model, const struct pp_notes *notes,
                            struct pp_weights_writer **out) PP_MUST_CHECK;
/* The tensors one after another, in model order, in any pieces. */
pp_status pp_weights_append(struct pp_weights_writer *writer, const float *values, int64_t n) PP_MUST_CHECK;
/* Is each value so far a finite number? */
bool pp_weights_finite(const struct pp_weights_writer *writer);
/* Makes the file durable. PP_INTERNAL where values are missing: the file does not take its place then. The writer is
 * gone afterwards, whatever the result. */
pp_status pp_weights_commit(struct pp_weights_writer *writer) PP_MUST_CHECK;
void pp_weights_discard(struct pp_weights_writer *writer); /* NULL is fine */

#endif
