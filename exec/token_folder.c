/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder of tokens: what a tokenizer made of a text before, numbers without a header, least byte first. They have two
 * bytes where --vocab is at most 65536, else four. The vocabulary is the model's.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/options/file_names.h"
#include "exec/data.h"

enum {
    SMALL_VOCABULARY = 65536,
    BLOCK = 16384,       /* tokens that are read at once, an even number */
    ENOUGH_TO_JUDGE = 64 /* tokens: in fewer, zeros at every other place may be chance */
};

/* Where there is no test.bin, the validation part is the test, too. */
#define NAME(part, number, name) [PP_PART_##part][number] = (name),
static const char *const file_names[PP_PARTS][PP_TOKEN_NAMES] = {PP_TOKEN_FILES(NAME)};

struct token_file {
    char path[4096];
    int width; /* bytes of a token */
    int64_t length;
};

static pp_status set_path(const struct pp_config *config, const char *name, struct token_file *file)
{
    const int length = snprintf(file->path, sizeof file->path, "%s/%s", config->data, name);
    if (length < 0 || (size_t)length >= sizeof file->path) return pp_fail(PP_INPUT, "--data: the path is too long");
    return PP_OK;
}

/* The first of the names that is there; all of them, if several are, are too many. */
static pp_status find_name(const struct pp_config *config, enum pp_part part, struct token_file *file, int *found)
{
    struct stat info;
    *found = 0;
    for (int i = PP_TOKEN_NAMES - 1; i >= 0; i--) {
        struct token_file tried;
        if (!file_names[part][i]) continue;
        PP_TRY(set_path(config, file_names[part][i], &tried));
        if (stat(tried.path, &info) != 0 && errno == ENOENT) continue;
        memcpy(file->path, tried.path, sizeof file->path);
        ++*found;
    }
    if (*found <= 1) return PP_OK;
    return pp_fail(PP_INPUT, "--data: %s holds %s and %s, two files for one part; keep one of them", config->data,
                   file_names[part][0], file_names[part][1]);
}

/* Before it is opened: opening a pipe would wait for a writer. */
static pp_status measure(const struct pp_config *config, struct token_file *file)
{
    struct stat info;
    if (stat(file->path, &info) != 0) return pp_fail(PP_INPUT, "cannot open %s: %s", file->path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return pp_fail(PP_INPUT, "%s is %s, not a file of tokens", file->path,
                       S_ISDIR(info.st_mode) ? "a folder" : "a pipe or a device");
    if (info.st_size == 0) return pp_fail(PP_INPUT, "%s holds no tokens", file->path);
    file->width = config->model.vocab <= SMALL_VOCABULARY ? 2 : 4;
    file->length = info.st_size / file->width;
    if (info.st_size % file->width == 0) return PP_OK;
    return pp_fail(PP_INPUT, "%s has %lld bytes, but with --vocab %d a token has %d: the last one is cut off",
                   file->path, (long long)info.st_size, config->model.vocab, file->width);
}

static pp_status find_part(const struct pp_config *config, enum pp_part part, struct token_file *file)
{
    int found;
    PP_TRY(find_name(config, part, file, &found));
    if (!found && part == PP_PART_TEST) PP_TRY(find_name(config, PP_PART_VALID, file, &found));
    if (!found) PP_TRY(set_path(config, file_names[part][0], file)); /* for the message */
    return measure(config, file);
}

/* n tokens from place `first` on. */
static pp_status take_tokens(const struct token_file *file, const unsigned char *bytes, int64_t first, int64_t n,
                             int vocabulary, int32_t *words)
{
    for (int64_t i = 0; i < n; i++, bytes += file->width) {
        uint32_t token = bytes[0] | (uint32_t)bytes[1] << 8;
        if (file->width == 4) token |= (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
        if (token >= (uint32_t)vocabulary)
            return pp_fail(PP_INPUT,
                           "%s: token %lld, at byte %lld, is %lu, but --vocab is %d; give the tokenizer's --vocab (up "
                           "to 65536 words, tokens have 2 bytes each, above that 4, and there is no header)",
                           file->path, (long long)(first + i), (long long)((first + i) * file->width),
                           (unsigned long)token, vocabulary);
        words[first + i] = (int32_t)token;
    }
    return PP_OK;
}

static pp_status read_tokens(const struct token_file *file, int vocabulary, FILE *in, int32_t *words)
{
    static const char cut[] = "it has become shorter";
    unsigned char bytes[BLOCK * 4];
    for (int64_t first = 0; first < file->length; first += BLOCK) {
        const int64_t left = file->length - first, n = left < BLOCK ? left : BLOCK;
        errno = 0;
        if (fread(bytes, (size_t)file->width, (size_t)n, in) != (size_t)n)
            return pp_fail(PP_IO, "cannot read %s: %s", file->path, ferror(in) ? strerror(errno) : cut);
        PP_TRY(take_tokens(file, bytes, first, n, vocabulary, words));
    }
    return PP_OK;
}

/* Small numbers of four bytes look like two tokens, of which the second is 0, and the first of some is not. */
static pp_status check_width(const struct token_file *file, int vocabulary, const int32_t *words)
{
    bool wide = false;
    if (file->width != 2 || file->length < ENOUGH_TO_JUDGE || file->length % 2 != 0) return PP_OK;
    for (int64_t i = 0; i < file->length; i += 2) {
        if (words[i + 1] != 0) return PP_OK;
        wide |= words[i] != 0;
    }
    if (!wide) return PP_OK;
    return pp_fail(PP_INPUT,
                   "%s: every other token is 0, as if tokens had 4 bytes, but with --vocab %d, up to 65536, they have "
                   "2; write them as 16-bit numbers",
                   file->path, vocabulary);
}

static pp_status read_part(const struct pp_config *config, enum pp_part part, struct pp_data *data)
{
    struct token_file file;
    PP_TRY(find_part(config, part, &file));
    PP_TRY(pp_prefix(PP_NEW(&data->words[part], file.length), "%s", file.path));
    data->length[part] = file.length;
    FILE *in = fopen(file.path, "rb");
    if (!in) return pp_fail(PP_INPUT, "cannot open %s: %s", file.path, strerror(errno));
    pp_status status = read_tokens(&file, config->model.vocab, in, data->words[part]);
    fclose(in);
    return status == PP_OK ? check_width(&file, config->model.vocab, data->words[part]) : status;
}

pp_status pp_data_read_tokens(const struct pp_config *config, struct pp_data *data)
{
    struct token_file file;
    int found = 1;
    PP_TRY(read_part(config, PP_PART_TRAIN, data));
    for (enum pp_part part = PP_PART_VALID; part < PP_PARTS && !config->no_eval; part++)
        PP_TRY(pp_prefix(read_part(config, part, data), "evaluation (--no-eval trains without)"));
    if (!config->no_eval) PP_TRY(find_name(config, PP_PART_TEST, &file, &found));
    snprintf(data->summary, sizeof data->summary, "tokens: %lld training, %lld validation, %lld test%s",
             (long long)data->length[PP_PART_TRAIN], (long long)data->length[PP_PART_VALID],
             (long long)data->length[PP_PART_TEST], found ? "" : " (there is no test.bin: the validation part again)");
    return PP_OK;
}

pp_status pp_data_survey_tokens(const struct pp_config *config, struct pp_data *data)
{
    struct token_file file;
    PP_TRY(find_part(config, PP_PART_TRAIN, &file));
    data->length[PP_PART_TRAIN] = file.length;
    for (enum pp_part part = PP_PART_VALID; part < PP_PARTS && !config->no_eval; part++)
        if (find_part(config, part, &file) == PP_OK) data->length[part] = file.length;
    return PP_OK;
}
