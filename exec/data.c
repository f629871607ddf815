/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/data.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/hash.h"

static const char *const part_names[PP_PARTS] = {"training", "validation", "test"};

enum { CONSTANT_BATCHES = 3 }; /* an epoch of the lab */

static pp_status size_constant(const struct pp_config *config, struct pp_data *data)
{
    const int64_t column = (int64_t)config->replicas * CONSTANT_BATCHES * (config->tokens + 1);
    const bool counted = !__builtin_mul_overflow(column, config->rows, &data->length[PP_PART_TRAIN]);
    if (counted && data->length[PP_PART_TRAIN] <= INT64_MAX / (int64_t)sizeof *data->words[0]) return PP_OK;
    return pp_fail(PP_USAGE, "--data constant: %d rows of %d tokens for each of %d replicas are too many; use fewer",
                   config->rows, config->tokens, config->replicas);
}

/* Sequence k is all k; batch i of replica r has sequences (i*D + r) * rows and following. Laid out as columns, so
 * that row j of the batches holds one sequence after another. */
static pp_status make_constant(const struct pp_config *config, struct pp_data *data)
{
    int64_t words = config->tokens + 1, replicas = config->replicas;
    PP_TRY(size_constant(config, data));
    PP_TRY(PP_NEW(&data->words[PP_PART_TRAIN], data->length[PP_PART_TRAIN]));
    int32_t *word = data->words[PP_PART_TRAIN];
    for (int64_t row = 0; row < config->rows; row++)
        for (int64_t replica = 0; replica < replicas; replica++)
            for (int64_t batch = 0; batch < CONSTANT_BATCHES; batch++)
                for (int64_t t = 0; t < words; t++)
                    *word++ = (int32_t)(((batch * replicas + replica) * config->rows + row) % config->model.vocab);
    data->sequences = true;
    data->reachable_loss = 0;
    snprintf(data->summary, sizeof data->summary, "constant: %lld sequences of %lld equal words, reachable loss 0",
             (long long)(CONSTANT_BATCHES * replicas * config->rows), (long long)words);
    return PP_OK;
}

/* Where the words come from. `survey` finds the vocabulary and how many words there are, and keeps none. */
struct source {
    pp_status (*survey)(const struct pp_config *config, struct pp_data *data);
    pp_status (*read)(const struct pp_config *config, struct pp_data *data);
};

static const struct source texts = {pp_data_survey_texts, pp_data_read_texts},
                           tokens = {pp_data_survey_tokens, pp_data_read_tokens},
                           constant = {size_constant, make_constant},
                           generated = {pp_data_size_generated, pp_data_generate};

/* 0 if the folder has a file of that name; else the error that says why it is not found, ENOENT: it is not there. */
static int find_in(const char *folder, const char *name)
{
    char path[4096];
    struct stat info;
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof path) return ENAMETOOLONG;
    return stat(path, &info) == 0 ? 0 : errno;
}

/* A folder by its training part. */
static pp_status find_source(const struct pp_config *config, const struct source **out)
{
    const char *data = config->data;
    struct stat info;
    *out = data ? &constant : &generated;
    if (!pp_config_reads_text(config)) return PP_OK;
    const int words = find_in(data, "train.txt"), numbers = find_in(data, "train.bin");
    if (words == 0 && numbers == 0)
        return pp_fail(PP_INPUT, "--data: %s holds train.txt, a text, and train.bin, tokens; keep one of them", data);
    if (words == ENOENT && numbers == ENOENT && stat(data, &info) == 0 && S_ISDIR(info.st_mode))
        return pp_fail(PP_INPUT, "--data: %s holds neither train.txt, for a text, nor train.bin, for tokens", data);
    *out = numbers == 0 ? &tokens : &texts; /* what reads texts says what is wrong with a folder */
    return PP_OK;
}

pp_status pp_data_load(const struct pp_config *config, struct pp_data **out)
{
    struct pp_data *data;
    const struct source *source;
    PP_TRY(find_source(config, &source));
    PP_TRY(PP_NEW(&data, 1));
    data->reachable_loss = NAN;
    data->vocabulary = config->model.vocab;
    pp_status status = source->read(config, data);
    if (status == PP_OK)
        *out = data;
    else
        pp_data_free(data);
    return status;
}

uint64_t pp_data_hash(const struct pp_data *data)
{
    uint64_t hash = (uint64_t)data->sequences;
    for (int part = 0; part < PP_PARTS; part++) {
        hash = pp_hash_word(hash, (uint64_t)data->length[part]);
        for (int64_t i = 0; data->words[part] && i < data->length[part]; i++)
            hash = pp_hash_word(hash, (uint32_t)data->words[part][i]);
    }
    return hash;
}

int64_t pp_data_bytes(const struct pp_data *data)
{
    int64_t words = 0;
    for (int i = 0; i < PP_PARTS; i++) words += data->length[i];
    return words * (int64_t)sizeof *data->words[0];
}

/* Finds how large the data is without keeping it. all: else only where that is needed for the vocabulary. */
static pp_status survey(struct pp_config *config, bool all, struct pp_data *data)
{
    const struct source *source;
    *data = (struct pp_data){.vocabulary = config->model.vocab};
    PP_TRY(find_source(config, &source));
    if (all || source == &texts) PP_TRY(source->survey(config, data));
    config->model.vocab = data->vocabulary;
    return PP_OK;
}

pp_status pp_data_survey(struct pp_config *config, int64_t *bytes)
{
    struct pp_data data;
    PP_TRY(survey(config, true, &data));
    *bytes = pp_data_bytes(&data);
    return PP_OK;
}

pp_status pp_data_set_vocabulary(struct pp_config *config)
{
    struct pp_data data;
    return survey(config, false, &data);
}

void pp_data_free(struct pp_data *data)
{
    if (!data) return;
    for (int i = 0; i < PP_PARTS; i++) free(data->words[i]);
    free(data);
}

pp_status pp_batches_cut(const struct pp_data *data, enum pp_part part, const struct pp_batch_cut *cut,
                         struct pp_batches *out)
{
    const int rows = cut->rows, seq = cut->seq;
    struct pp_batches b = {.words = data->words[part], .rows = rows, .seq = seq};
    b.stride = data->length[part] / rows;
    b.length = b.stride / cut->replicas;
    b.start = b.length * cut->replica;
    b.advance = data->sequences ? seq + 1 : seq;
    int64_t targets = b.length - 1, count = data->sequences ? b.length / b.advance : (targets + seq - 1) / seq;
    if (targets < 1)
        return pp_fail(
            PP_INPUT,
            "the %s text has %lld words, too few for %d row%s%s: at least %lld are needed, an input and a target in "
            "each row; give more text or fewer rows",
            part_names[part], (long long)data->length[part], rows, pp_plural(rows),
            cut->replicas > 1 ? " in each replica" : "", 2LL * rows * cut->replicas);
    if (cut->limit && count > cut->limit)
        count = cut->limit;
    else if (!data->sequences)
        b.tail_seq = (int)(targets % seq);
    if (count > INT32_MAX)
        return pp_fail(PP_INPUT,
                       "the %s text has %lld batches of %d row%s of %d token%s, which are too many to be counted; use "
                       "more rows, or longer ones",
                       part_names[part], (long long)count, rows, pp_plural(rows), seq, pp_plural(seq));
    b.count = (int)count;
    *out = b;
    return PP_OK;
}

pp_status pp_batches_share(struct pp_batches *b, int parts, int part, bool halves)
{
    const bool tail = b->tail_seq > 0;
    b->parts = parts;
    b->part = part;
    b->halves = halves;
    b->tail_seq -= b->tail_seq % (halves ? 2 * parts : parts);
    b->count -= tail && b->tail_seq == 0;
    if (b->count > 0) return PP_OK;
    return pp_fail(
        PP_INPUT,
        "rows of %lld words are too short to be shared by --context-parallel %d; give more text or fewer rows",
        (long long)b->length - 1, parts);
}

int pp_batches_seq(const struct pp_batches *b, int i)
{
    return b->tail_seq && i == b->count - 1 ? b->tail_seq : b->seq;
}

void pp_batches_get(const struct pp_batches *b, int i, int32_t *inputs, int32_t *targets)
{
    const int parts = b->parts ? b->parts : 1, chunks = b->halves ? 2 : 1;
    const size_t n = (size_t)(pp_batches_seq(b, i) / (parts * chunks)), bytes = n * sizeof *b->words;
    const int32_t *row = b->words + b->start + i * b->advance;
    for (int k = 0; k < b->rows * chunks; k++) {
        const int chunk = k % chunks ? chunks * parts - 1 - b->part : b->part;
        const int32_t *from = row + k / chunks * b->stride + (int64_t)chunk * (int64_t)n;
        if (inputs) memcpy(inputs + (size_t)k * n, from, bytes);
        if (targets) memcpy(targets + (size_t)k * n, from + 1, bytes);
    }
}
