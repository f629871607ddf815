/* SPDX-License-Identifier: Apache-2.0
 *
 * Training data: a folder with train.txt, valid.txt and test.txt; one with train.bin and val.bin, which hold tokens;
 * constant sequences; or a generated text. Whatever it is, it becomes one long list of word numbers per part, and a
 * part is cut into rows and batches in one way.
 *
 * Columns: with n = words div rows, row r is the text from r*n to (r+1)*n. Replicas: of every row, replica k reads
 * words k*(n div D) .. (k+1)*(n div D) - 1. Batches: input and target are `seq` words from t and from t+1 on, t = i *
 * advance; the last batch may be shorter. Of these words a worker has all, or a part (pp_shape.context): of `seq`
 * words, part k of C has those from k * (seq div C) on, or of 2 C chunks k and 2 C - 1 - k (pp_shape_gathers_keys);
 * what C, or 2 C, does not divide, the last batch leaves out.
 */
#ifndef PP_EXEC_DATA_H
#define PP_EXEC_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "core/config.h"

enum pp_part { PP_PART_TRAIN, PP_PART_VALID, PP_PART_TEST, PP_PARTS };

struct pp_data {
    int32_t *words[PP_PARTS]; /* NULL: there is no such part */
    int64_t length[PP_PARTS];
    int vocabulary;
    bool sequences;        /* rows are made of separate sequences of seq + 1 words: a batch never reads across two */
    double reachable_loss; /* NAN where it is not known */
    char summary[200];     /* for the run header */
};

/* What config->data names. A text folder without --no-eval needs all three files. PP_USAGE where --vocab contradicts
 * the text; else the caller sets config->vocab to the result's. Tokens are below config->vocab, which stays. */
pp_status pp_data_load(const struct pp_config *config, struct pp_data **out) PP_MUST_CHECK;
void pp_data_free(struct pp_data *data); /* NULL is fine */

/* For programs that need the shape of the model but not the data: if config->data names a text folder, sets
 * config->vocab to the vocabulary of its training text (PP_USAGE where --vocab contradicts it). */
pp_status pp_data_set_vocabulary(struct pp_config *config) PP_MUST_CHECK;
/* The same, and the bytes that pp_data_load() would keep. */
pp_status pp_data_survey(struct pp_config *config, int64_t *bytes) PP_MUST_CHECK;
/* Names the words: equal for equal data. */
uint64_t pp_data_hash(const struct pp_data *data);
/* Bytes of the words. */
int64_t pp_data_bytes(const struct pp_data *data);

/* The sources behind pp_data_load(). */
/* Vocabulary and lengths of the parts, no words; a part of validation or test that cannot be read has none. */
pp_status pp_data_survey_texts(const struct pp_config *config, struct pp_data *data) PP_MUST_CHECK;
pp_status pp_data_read_texts(const struct pp_config *config, struct pp_data *data) PP_MUST_CHECK;
pp_status pp_data_survey_tokens(const struct pp_config *config, struct pp_data *data) PP_MUST_CHECK;
pp_status pp_data_read_tokens(const struct pp_config *config, struct pp_data *data) PP_MUST_CHECK;
/* Only the lengths. PP_USAGE where there would be too many words. */
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
    int parts, part; /* of the words of a row; 0 parts: one has all */
    bool halves;     /* a part is two chunks */
};

/* limit: 0 = all batches. PP_INPUT where the part is too short for one word in and out, or has too many batches. */
pp_status pp_batches_cut(const struct pp_data *data, enum pp_part part, int rows, int seq, int replicas, int replica,
                         int limit, struct pp_batches *out) PP_MUST_CHECK;
/* The batches of one of so many workers who share the words of rows; seq is a multiple of their chunks. PP_INPUT where
 * no batch is left. */
pp_status pp_batches_share(struct pp_batches *batches, int parts, int part, bool halves) PP_MUST_CHECK;
/* Length of the rows of batch i, all parts together. */
int pp_batches_seq(const struct pp_batches *batches, int i);
/* Fills [rows, the part's words of a row] each; either may be NULL. */
void pp_batches_get(const struct pp_batches *batches, int i, int32_t *inputs, int32_t *targets);

#endif
