/* SPDX-License-Identifier: Apache-2.0
 *
 * --help from the option table, in the form that help2man turns into a man page and completion/ppkit.bash reads.
 */
#include "core/options/options.h"

#include <string.h>

#include "core/base/wrap.h"

enum { HELP_COLUMN = 28 };

static const char *const type_args[] = {
    [PP_OPT_FLAG] = NULL,    [PP_OPT_INT] = "N",          [PP_OPT_SEED] = "N",      [PP_OPT_BYTES] = "SIZE",
    [PP_OPT_REAL] = "X",     [PP_OPT_TEXT] = "TEXT",      [PP_OPT_CHOICE] = "",     [PP_OPT_CHOICES] = "",
    [PP_OPT_INTS] = "N,...", [PP_OPT_TEXTS] = "NAME,...", [PP_OPT_REALS] = "X,...", [PP_OPT_AMOUNT] = "N",
};

static const char *row_arg(const struct pp_opt *row)
{
    if (row->arg) return row->arg;
    return row->choices ? row->choices : type_args[row->type];
}

static void print_row(FILE *out, const struct pp_opt *row)
{
    const char *arg = row_arg(row);
    char left[256], help[1024];
    int n = snprintf(left, sizeof left, "  --%s%s%s", row->name, arg ? "=" : "", arg ? arg : "");
    if (row->def && row->type != PP_OPT_FLAG)
        snprintf(help, sizeof help, "%s (default %s)", row->help, row->def);
    else
        snprintf(help, sizeof help, "%s", row->help);

    if (n + 2 <= HELP_COLUMN)
        fprintf(out, "%-*s", HELP_COLUMN, left);
    else
        fprintf(out, "%s\n%*s", left, HELP_COLUMN, "");
    pp_wrap(out, help, HELP_COLUMN, HELP_COLUMN);
}

static void print_group(const struct pp_opt *rows, int n, unsigned tool, const char *group, FILE *out)
{
    fprintf(out, "\n%s:\n", group);
    for (int i = 0; i < n; i++)
        if ((rows[i].tools & tool) && strcmp(rows[i].group, group) == 0) print_row(out, &rows[i]);
}

/* Is rows[at] the first row of its group among those that the program takes? */
static bool opens_group(const struct pp_opt *rows, int at, unsigned tool)
{
    if (!(rows[at].tools & tool)) return false;
    for (int i = 0; i < at; i++)
        if ((rows[i].tools & tool) && strcmp(rows[i].group, rows[at].group) == 0) return false;
    return true;
}

static void print_paragraphs(FILE *out, const char *text)
{
    while (*text) {
        int n = (int)strcspn(text, "\n");
        char line[1024];
        snprintf(line, sizeof line, "%.*s", n, text);
        pp_wrap(out, line, 0, 0);
        text += n + (text[n] == '\n');
    }
}

static void print_examples(FILE *out, const char *examples)
{
    fprintf(out, "\nExamples:\n");
    for (const char *at = examples; *at;) {
        int command = (int)strcspn(at, "\t\n");
        int line = (int)strcspn(at, "\n");
        fprintf(out, "  %.*s\n", command, at);
        if (line > command) fprintf(out, "        %.*s\n", line - command - 1, at + command + 1);
        at += line + (at[line] == '\n');
    }
}

void pp_options_help(const struct pp_opt *rows, int n, const struct pp_program_info *program, FILE *out)
{
    const char *operands = program->operands ? program->operands : "";
    fprintf(out, "Usage: %s [OPTION]...%s%s\n%s\n", program->name, *operands ? " " : "", operands, program->summary);
    if (program->description && *program->description) {
        fputc('\n', out);
        print_paragraphs(out, program->description);
    }
    for (int i = 0; i < n; i++)
        if (opens_group(rows, i, program->tool)) print_group(rows, n, program->tool, rows[i].group, out);
    if (program->examples && *program->examples) print_examples(out, program->examples);
    fprintf(out, "\nExit status: 0 good, 1 failed, 2 called wrongly, 130 interrupted.\n");
}
