/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder of texts. The vocabulary is that of the training text; other words become 0, "<unk>".
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/options/file_names.h"
#include "exec/data.h"
#include "exec/tokenize.h"
#include "exec/vocabulary.h"

#define NAME(part, name) [PP_PART_##part] = (name),
static const char *const file_names[PP_PARTS] = {PP_TEXT_FILES(NAME)};

struct reader {
    struct pp_vocabulary *vocabulary;
    bool learning; /* the training text makes the vocabulary */
    int32_t *words;
    int64_t length, capacity;
};

static pp_status take_word(void *arg, const char *word, size_t length)
{
    struct reader *r = arg;
    int32_t number;
    PP_TRY(PP_GROW(&r->words, r->length + 1, &r->capacity));
    if (r->learning)
        PP_TRY(pp_vocabulary_add(r->vocabulary, word, length, &number));
    else
        number = pp_vocabulary_find(r->vocabulary, word, length);
    r->words[r->length++] = number;
    return PP_OK;
}

static pp_status read_part(const struct pp_config *config, struct pp_vocabulary *vocabulary, enum pp_part part,
                           struct pp_data *data)
{
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/%s", config->data, file_names[part]);
    if (length < 0 || (size_t)length >= sizeof path) return pp_fail(PP_INPUT, "--data: the path is too long");
    struct reader reader = {.vocabulary = vocabulary, .learning = part == PP_PART_TRAIN};
    pp_status status = pp_tokenize_file(path, take_word, &reader);
    data->words[part] = reader.words;
    data->length[part] = reader.length;
    if (status == PP_OK && reader.length == 0) status = pp_fail(PP_INPUT, "%s holds no words", path);
    return status;
}

static pp_status number_by_rank(struct pp_vocabulary *vocabulary, struct pp_data *data)
{
    int32_t *map, *words = data->words[PP_PART_TRAIN];
    PP_TRY(pp_vocabulary_rank(vocabulary, &map));
    for (int64_t i = 0; i < data->length[PP_PART_TRAIN]; i++) words[i] = map[words[i]];
    free(map);
    data->vocabulary = pp_vocabulary_size(vocabulary);
    return PP_OK;
}

static pp_status check_folder(const struct pp_config *config)
{
    struct stat info;
    if (stat(config->data, &info) == 0 && S_ISDIR(info.st_mode)) return PP_OK;
    return pp_fail(
        PP_INPUT,
        "--data: there is no folder '%s'; give a folder with train.txt, valid.txt and test.txt, or of tokens with "
        "train.bin and val.bin, or 'constant' or 'generated'",
        config->data);
}

/* The training text, and with it the vocabulary. */
static pp_status read_training(const struct pp_config *config, struct pp_vocabulary *vocabulary, struct pp_data *data)
{
    PP_TRY(check_folder(config));
    PP_TRY(read_part(config, vocabulary, PP_PART_TRAIN, data));
    PP_TRY(number_by_rank(vocabulary, data));
    if (pp_config_given(config, model.vocab) && config->model.vocab != data->vocabulary)
        return pp_fail(PP_USAGE,
                       "--vocab %d: the text in %s has a vocabulary of %d words, and it decides; leave --vocab out",
                       config->model.vocab, config->data, data->vocabulary);
    return PP_OK;
}

static pp_status read_parts(const struct pp_config *config, struct pp_vocabulary *vocabulary, struct pp_data *data)
{
    PP_TRY(read_training(config, vocabulary, data));
    for (enum pp_part part = PP_PART_VALID; part < PP_PARTS && !config->no_eval; part++)
        PP_TRY(pp_prefix(read_part(config, vocabulary, part, data), "evaluation (--no-eval trains without)"));
    return PP_OK;
}

static pp_status count_word(void *arg, const char *word, size_t length)
{
    (void)word;
    (void)length;
    ++*(int64_t *)arg;
    return PP_OK;
}

/* Training would say what is wrong with the file. */
static int64_t count_words(const struct pp_config *config, enum pp_part part)
{
    char path[4096];
    int64_t words = 0;
    int length = snprintf(path, sizeof path, "%s/%s", config->data, file_names[part]);
    if (length < 0 || (size_t)length >= sizeof path) return 0;
    return pp_tokenize_file(path, count_word, &words) == PP_OK ? words : 0;
}

pp_status pp_data_survey_texts(const struct pp_config *config, struct pp_data *data)
{
    struct pp_vocabulary *vocabulary;
    PP_TRY(pp_vocabulary_create(&vocabulary));
    pp_status status = read_training(config, vocabulary, data);
    pp_vocabulary_free(vocabulary);
    for (enum pp_part part = PP_PART_VALID; part < PP_PARTS && status == PP_OK && !config->no_eval; part++)
        data->length[part] = count_words(config, part);
    free(data->words[PP_PART_TRAIN]);
    data->words[PP_PART_TRAIN] = NULL;
    return status;
}

pp_status pp_data_read_texts(const struct pp_config *config, struct pp_data *data)
{
    struct pp_vocabulary *vocabulary;
    PP_TRY(pp_vocabulary_create(&vocabulary));
    pp_status status = read_parts(config, vocabulary, data);
    pp_vocabulary_free(vocabulary);
    snprintf(data->summary, sizeof data->summary, "text: %lld training, %lld validation, %lld test words",
             (long long)data->length[PP_PART_TRAIN], (long long)data->length[PP_PART_VALID],
             (long long)data->length[PP_PART_TEST]);
    return status;
}
