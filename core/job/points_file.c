/* SPDX-License-Identifier: Apache-2.0 */
#include "core/job/points_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/lines.h"
#include "core/options/distinct_files.h"

enum { MOST_WORDS = 63, WORDS = MOST_WORDS + 2 /* the first place is not used, and the last has what is too many */ };
static const char blanks[] = " \t\r\n";
/* What the configurations of one run may differ in. */
static const size_t differing[] = {PP_OPTION(schedule),       PP_OPTION(stages),
                                   PP_OPTION(tensor),         PP_OPTION(overlap_tensor_sums),
                                   PP_OPTION(virtual_stages), PP_OPTION(overlap_expert_exchange),
                                   PP_OPTION(zero),           PP_OPTION(chunks),
                                   PP_OPTION(shard_degree),   PP_OPTION(micro_batch_size),
                                   PP_OPTION(checkpoint)};

struct pp_points_line {
    struct pp_points_line *next;
    struct pp_config config;
};

struct reading {
    const struct pp_config *config;
    unsigned tool;
    const struct pp_schedules *schedules;
    struct pp_points_file *out;
    int64_t capacity; /* of out->points */
};

/* Cuts the words of a line apart: word[1 .. returned - 1]. */
static int words_of(char *line, char *word[WORDS])
{
    char *rest, *next = strtok_r(line, blanks, &rest);
    int n = 1;
    for (; next && *next != '#' && n < WORDS; next = strtok_r(NULL, blanks, &rest)) word[n++] = next;
    return n;
}

static pp_status check_differing(const bool *set)
{
    enum { DIFFERING = sizeof differing / sizeof *differing };
    for (int i = 0; i < pp_config_nrows; i++) {
        int k = 0;
        while (k < DIFFERING && differing[k] != pp_config_rows[i].offset) k++;
        if (set[i] && k == DIFFERING)
            return pp_fail(PP_USAGE, "--%s is the same for all configurations of a run: give it to the program",
                           pp_config_rows[i].name);
    }
    return PP_OK;
}

static int row_of(size_t option) { return (int)(pp_config_row_of(option) - pp_config_rows); }

/* Of the two ways to say how rows are cut, that of the line beats the other one of the command line. */
static void cut_as_said(const bool *set, struct pp_config *config)
{
    const int chunks = row_of(PP_OPTION(chunks)), size = row_of(PP_OPTION(micro_batch_size));
    if (set[chunks] == set[size]) return;
    config->set[set[chunks] ? size : chunks] = false;
    if (set[chunks]) config->micro_batch_size.n = 0;
}

/* Sets in `config` what the words say. */
static pp_status apply(const struct reading *r, int n, char **word, struct pp_config *config)
{
    bool set[sizeof config->set / sizeof *config->set] = {false};
    const struct pp_options_call call = {pp_config_rows, pp_config_nrows, r->tool, config, set};
    PP_TRY(pp_options_apply(&call, n, word));
    PP_TRY(check_differing(set));
    for (int i = 0; i < pp_config_nrows; i++) config->set[i] = config->set[i] || set[i];
    cut_as_said(set, config);
    pp_config_cut_rows(config);
    if (set[row_of(PP_OPTION(schedule))]) PP_TRY(pp_check_distinct_files(config, r->tool, NULL));
    PP_TRY(pp_config_check_additions(config));
    return pp_config_check(config, r->tool);
}

/* Takes the points behind those that there are. */
static pp_status add_points(struct reading *r, const struct pp_config *config)
{
    struct pp_points_file *out = r->out;
    struct pp_point *points;
    int n;
    PP_TRY(pp_points(config, r->schedules, &points, &n));
    pp_status status = PP_OK;
    if (n > PP_MOST_POINTS - out->n)
        status = pp_fail(PP_USAGE, "there can be at most %d configurations", PP_MOST_POINTS);
    if (status == PP_OK) status = PP_GROW(&out->points, out->n + n, &r->capacity);
    if (status == PP_OK) memcpy(out->points + out->n, points, (size_t)n * sizeof *points);
    if (status == PP_OK) out->n += n;
    free(points);
    return status;
}

static pp_status read_line(void *reading, char *text)
{
    struct reading *r = reading;
    char *word[WORDS];
    struct pp_points_line *line;
    const int n = words_of(text, word);
    if (n == 1) return PP_OK;
    if (n == WORDS) return pp_fail(PP_USAGE, "a line has at most %d words", MOST_WORDS);
    PP_TRY(PP_NEW(&line, 1));
    line->next = r->out->lines;
    r->out->lines = line;
    line->config = *r->config;
    PP_TRY(apply(r, n, word, &line->config));
    return add_points(r, &line->config);
}

static pp_status read_lines(struct reading *r, FILE *in)
{
    int number;
    const pp_status status = pp_lines_each(in, &number, read_line, r);
    return pp_prefix(status, "--points %s, line %d", r->config->points, number);
}

pp_status pp_points_file_read(const struct pp_config *config, unsigned tool, const struct pp_schedules *schedules,
                              struct pp_points_file *out)
{
    struct reading r = {.config = config, .tool = tool, .schedules = schedules, .out = out};
    *out = (struct pp_points_file){0};
    FILE *in = fopen(config->points, "r");
    if (!in) return pp_fail(PP_INPUT, "--points: cannot open %s: %s", config->points, strerror(errno));
    pp_status status = read_lines(&r, in);
    (void)fclose(in); /* it was only read */
    if (status == PP_OK && out->n == 0)
        status = pp_fail(PP_USAGE,
                         "--points: %s names no configuration; write a line for each, such as "
                         "\"--schedule 1f1b --chunks 8\"",
                         config->points);
    return status;
}

const struct pp_config *pp_points_file_first(const struct pp_points_file *file)
{
    const struct pp_points_line *line = file->lines;
    while (line && line->next) line = line->next;
    return line ? &line->config : NULL;
}

void pp_points_file_free(struct pp_points_file *file)
{
    for (struct pp_points_line *line = file->lines; line;) {
        struct pp_points_line *next = line->next;
        free(line);
        line = next;
    }
    free(file->points);
    *file = (struct pp_points_file){0};
}
