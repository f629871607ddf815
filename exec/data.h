/* SPDX-License-Identifier: Apache-2.0
 *
 * Training data: a folder with train.txt, valid.txt and test.txt; one with train.bin and val.bin, which hold tokens;
 * constant sequences; or a generated text. Whatever it is, it becomes one long list of word numbers per part, and a
 * part is cut into rows and batches in one way.
 *
 * Columns: with n = words div rows, row r is the text from r*n to (r+1)*n. Replicas: of every row, replica k reads
 * words k*(n div D) .. (k+1)*(n div D) - 1. Batches: input and target are `seq` words from t and from t+1 on, t = i *
 * advance; the last batch may be shorter. C workers may share the words of a row (pp_shape.context). Then part k has
 * the seq div C words from k * (seq div C) on; or, with pp_shape_halves_rows(), the row is cut into 2 C chunks, and
 * part k has the chunks k and 2 C - 1 - k. The last batch leaves out the words that C, or 2 C, does not divide.
 */
#ifndef PP_EXEC_DATA_H
#define PP_EXEC_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "core/options/config.h"

enum pp_part { PP_PART_TRAIN, PP_PART_VALID, PP_PART_TEST, PP_PARTS };

struct pp_data {
    int32_t *words[PP_PARTS]; /* NULL: there is no such part */
    int64_t length[PP_PARTS];
    int vocabulary;
    bool sequences;        /* rows are made of separate sequences of seq + 1 words: a batch never reads across two */
    double reachable_loss; /* NAN where it is not known */
    char summary[200];     /* for the run header */
};

/* Loads what config->data names. A text folder needs all three files, unless there is --no-eval. PP_USAGE where --vocab
 * contradicts the text. The caller then sets the model's vocabulary to that of the result. (That of tokens, which are
 * all below it, is the model's own.) */
pp_status pp_data_load(const struct pp_config *config, struct pp_data **out) PP_MUST_CHECK;
void pp_data_free(struct pp_data *data); /* NULL is fine */

/* For programs that need the shape of the model but not the data: if config->data names a text folder, sets the model's
 * vocabulary to that of its training text (PP_USAGE where --vocab contradicts it). */
pp_status pp_data_set_vocabulary(struct pp_config *config) PP_MUST_CHECK;
/* The same; *bytes is what pp_data_load() would keep in memory. */
pp_status pp_data_survey(struct pp_config *config, int64_t *bytes) PP_MUST_CHECK;
/* A hash of all words of all parts: equal data have equal hashes. */
uint64_t pp_data_hash(const struct pp_data *data);
/* Bytes of memory of all words. */
int64_t pp_data_bytes(const struct pp_data *data);

/* The sources behind pp_data_load(). */
/* Sets the vocabulary and the lengths of the parts, and reads no words into memory. A validation or test part that
 * cannot be read gets length 0. */
pp_status pp_data_survey_texts(const struct pp_config *config, struct pp_data *data) PP_MUST_CHECK;
pp_status pp_data_read_texts(const struct pp_config *config, struct pp_data *data) PP_MUST_CHECK;
pp_status pp_data_survey_tokens(const struct pp_config *config, struct pp_data *data) PP_MUST_CHECK;
pp_status pp_data_read_tokens(const struct pp_config *config, struct pp_data *data) PP_MUST_CHECK;
/* Sets only the lengths of the parts. */
pp_status pp_data_size_generated(const struct pp_config *config, struct pp_data *data) PP_MUST_CHECK;
pp_status pp_data_generate(const struct pp_config *config, struct pp_data *data) PP_MUST_CHECK;

/* One part as one replica sees it. */
struct pp_batches {
    const int32_t *words;
    int rows, seq;
    int64_t stride;  /* n: between two rows */
    int64_t start;   /* first word of this replica in a row */
    int64_t length;  /* words of this replica in a row */
    int64_t advance; /* words between two batches */
    int count;       /* batches, all or the limit */
    int tail_seq;    /* words of the last one where it is shorter, else 0 */
    int parts, part; /* the words of a row are shared by so many; which of them this is. parts 0: they are not shared */
    bool halves;     /* a part consists of two chunks */
};

/* How a part is cut into batches for one replica. */
struct pp_batch_cut {
    int rows, seq;         /* of a batch */
    int replicas, replica; /* so many have a part of each row; which of them this is */
    int limit;             /* batches at most; 0: all */
};

/* PP_INPUT where the part is too short for one word of input and one of target, or has too many batches. */
pp_status pp_batches_cut(const struct pp_data *data, enum pp_part part, const struct pp_batch_cut *cut,
                         struct pp_batches *out) PP_MUST_CHECK;
/* Makes of the batches of a replica those of one worker, where `parts` workers share the words of each row. seq must be
 * a multiple of parts, with halves of 2 * parts. PP_INPUT where no batch is left. */
pp_status pp_batches_share(struct pp_batches *batches, int parts, int part, bool halves) PP_MUST_CHECK;
/* Words of a row of batch i, in all parts together. */
int pp_batches_seq(const struct pp_batches *batches, int i);
/* Copies batch i: inputs and targets are [rows][words of this part in a row]; either may be NULL. */
void pp_batches_get(const struct pp_batches *batches, int i, int32_t *inputs, int32_t *targets);

#endif
