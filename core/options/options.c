/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks argv over the option table. Not getopt_long(): that one accepts abbreviations, keeps its state in globals, and
 * words its own messages.
 */
#include "core/options/options.h"

#include <string.h>

#include "core/base/text.h"

static const struct {
    unsigned tool;
    const char *name;
} tool_names[] = {{PP_PPSIM, "ppsim"}, {PP_PPEXEC, "ppexec"}, {PP_PPPROF, "ppprof"}, {PP_PPREPORT, "ppreport"}};

enum { NAME_BYTES = 64, NAMES_BYTES = 4096, MAX_DISTANCE = 1000 };

static int min_int(int a, int b) { return a < b ? a : b; }

/* The Levenshtein distance, computed with one row of the matrix. Names that are longer than the row count as unrelated.
 */
static int edit_distance(const char *a, const char *b)
{
    int row[NAME_BYTES + 1];
    size_t na = strlen(a), nb = strlen(b);
    if (na > NAME_BYTES || nb > NAME_BYTES) return MAX_DISTANCE;
    for (size_t j = 0; j <= nb; j++) row[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int substituted = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = min_int(substituted, 1 + min_int(row[j], row[j - 1]));
        }
    }
    return row[nb];
}

/* As edit_distance(), but a text that is the beginning of the name ("--check") is near. */
static int name_distance(const char *text, const char *name)
{
    size_t n = strlen(text);
    if (n >= 3 && strncmp(text, name, n) == 0) return 1;
    return edit_distance(text, name);
}

const char *pp_nearest(const char *text, const char *choices, char *buf, size_t size)
{
    int best = MAX_DISTANCE;
    for (const char *at = choices; at && *at;) {
        size_t n = strcspn(at, "|");
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        int distance = name_distance(text, name);
        if (distance < best) {
            best = distance;
            snprintf(buf, size, "%s", name);
        }
        at += n + (at[n] == '|');
    }
    return best <= 1 + (int)strlen(text) / 3 ? buf : NULL;
}

unsigned pp_tool_named(const char *name)
{
    for (size_t i = 0; i < sizeof tool_names / sizeof *tool_names; i++)
        if (strcmp(tool_names[i].name, name) == 0) return tool_names[i].tool;
    return 0;
}

static const char *tool_name(unsigned tools)
{
    for (size_t i = 0; i < sizeof tool_names / sizeof *tool_names; i++)
        if (tools & tool_names[i].tool) return tool_names[i].name;
    return "no program";
}

/* "ppsim, ppexec and ppprof": the programs that take an option of that name; "" if there is no such option. */
static const char *takers(const struct pp_opt *rows, int n, const char *name, char buf[NAME_BYTES])
{
    unsigned tools = 0;
    struct pp_text text = pp_text_in(buf, NAME_BYTES);
    for (int i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0) tools |= rows[i].tools;
    for (size_t i = 0; i < sizeof tool_names / sizeof *tool_names; i++) {
        if (!(tools & tool_names[i].tool)) continue;
        tools &= ~tool_names[i].tool;
        pp_text_add(&text, "%s%s", pp_text_between(&text, tools ? ", " : " and "), tool_names[i].name);
    }
    return buf;
}

/* The row called `name` among those that one of `tools` takes; -1 if there is none. */
static int find_row(const struct pp_opt *rows, int n, unsigned tools, const char *name)
{
    for (int i = 0; i < n; i++)
        if ((rows[i].tools & tools) && strcmp(rows[i].name, name) == 0) return i;
    return -1;
}

static pp_status fail_unknown(const struct pp_opt *rows, int n, unsigned tool, const char *name)
{
    char others[NAME_BYTES];
    if (*takers(rows, n, name, others))
        return pp_fail(PP_USAGE, "--%s is an option of %s, not of %s", name, others, tool_name(tool));

    const char *here = pp_option_elsewhere(name);
    if (here && find_row(rows, n, tool, here) >= 0)
        return pp_fail(PP_USAGE, "there is no option --%s; here that is --%s", name, here);
    char names[NAMES_BYTES], nearest[NAME_BYTES];
    struct pp_text text = pp_text_in(names, sizeof names);
    for (int i = 0; i < n; i++)
        if (rows[i].tools & tool) pp_text_add(&text, "%s|", rows[i].name);
    if (pp_nearest(name, names, nearest, sizeof nearest))
        return pp_fail(PP_USAGE, "there is no option --%s; did you mean --%s?", name, nearest);
    return pp_fail(PP_USAGE, "there is no option --%s; %s --help lists those there are", name, tool_name(tool));
}

/* The state of one parse. */
struct walk {
    const struct pp_options_call *call;
    int argc, at; /* argv[at] is the next argument */
    char **argv;
    int operands;
};

static bool is_help(const char *word) { return strcmp(word, "-h") == 0; }

/* Takes the option argv[at], "--name", "--name=value" or "-h", and moves `at` behind it and its value. */
static pp_status take_option(struct walk *w)
{
    const struct pp_options_call *call = w->call;
    const char *word = w->argv[w->at++], *text = is_help(word) ? "help" : word + 2;
    const char *equals = strchr(text, '=');
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - text) : (int)strlen(text), text);

    int i = find_row(call->rows, call->n, call->tool, name);
    if (i < 0) return fail_unknown(call->rows, call->n, call->tool, name);
    const struct pp_opt *row = &call->rows[i];
    const char *value = equals ? equals + 1 : NULL;
    if (row->type == PP_OPT_FLAG) {
        if (value) return pp_fail(PP_USAGE, "--%s: takes no value, but was given '%s'", name, value);
        value = "true";
    } else if (!value) {
        if (w->at == w->argc) return pp_fail(PP_USAGE, "--%s: the value is missing", name);
        value = w->argv[w->at++];
    }
    call->set[i] = true;
    return pp_options_set(row, value, call->options);
}

static pp_status take_operand(struct walk *w)
{
    const char *word = w->argv[w->at++];
    if (!w->call->operand || w->operands++ > 0)
        return pp_fail(PP_USAGE, "'%s' is neither an option nor the value of one", word);
    *w->call->operand = word;
    return PP_OK;
}

pp_status pp_options_apply(const struct pp_options_call *call, int argc, char **argv)
{
    struct walk w = {.call = call, .argc = argc, .at = 1, .argv = argv};
    bool only_operands = false;
    while (w.at < argc) {
        const char *word = argv[w.at];
        if (!only_operands && strcmp(word, "--") == 0) {
            only_operands = true;
            w.at++;
        } else if (!only_operands && (strncmp(word, "--", 2) == 0 || is_help(word))) {
            PP_TRY(take_option(&w));
        } else if (!only_operands && word[0] == '-' && word[1]) {
            return pp_fail(PP_USAGE, "there is no option %s; options begin with two dashes", word);
        } else {
            PP_TRY(take_operand(&w));
        }
    }
    return PP_OK;
}

pp_status pp_options_parse(const struct pp_options_call *call, int argc, char **argv)
{
    for (int i = 0; i < call->n; i++)
        if (call->rows[i].def) PP_TRY(pp_options_set(&call->rows[i], call->rows[i].def, call->options));
    return pp_options_apply(call, argc, argv);
}
