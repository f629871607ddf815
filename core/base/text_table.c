/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/text_table.h"

#include <string.h>

#include "core/base/terminal.h"
#include "core/base/text.h"
#include "core/base/wrap.h"

enum { HEADING_LINES = 2, SEPARATOR = 2 };

enum fate { OUT, TOLD, SHOWN, SPARED /* there was no room */ };

/* What becomes of a column. */
struct becomes {
    enum fate what;
    int cells, width;                           /* of the widest cell; of the column */
    char heading[HEADING_LINES][PP_CELL_BYTES]; /* the first line is empty if one is enough */
    char value[PP_CELL_BYTES];                  /* of the first cell other than "-" */
};

/* A number that was rounded to zero has no sign. */
static const char *cell_of(const struct pp_text_table *t, int64_t row, int c, char buf[PP_CELL_BYTES])
{
    const char *text = t->cell(t->of, row, c, buf);
    const size_t zeros = text[0] == '-' ? strspn(text + 1, "0.") : 0;
    return zeros > 0 && text[1 + zeros] == '\0' ? text + 1 : text;
}

/* --- what becomes of columns --- */

/* Are all cells the value, or gaps where the column may have them? Finds the value and the width, too. */
static bool scan(const struct pp_text_table *t, int c, struct becomes *f)
{
    char buf[PP_CELL_BYTES];
    bool same = true;
    snprintf(f->value, sizeof f->value, "-");
    for (int64_t row = 0; row < t->nrows; row++) {
        const char *text = cell_of(t, row, c, buf);
        const bool gap = strcmp(text, "-") == 0, first = strcmp(f->value, "-") == 0;
        const int width = pp_text_width(text);
        if (first && !gap) {
            same = row == 0 || t->columns[c].gaps;
            snprintf(f->value, sizeof f->value, "%s", text);
        }
        same &= (gap && t->columns[c].gaps) || strcmp(text, f->value) == 0;
        if (width > f->cells) f->cells = width;
    }
    return same;
}

static bool has_twin(const struct pp_text_table *t, int c)
{
    char buf[PP_CELL_BYTES], other[PP_CELL_BYTES];
    int twin = 0;
    if (!t->columns[c].twin) return false;
    while (twin < t->ncolumns && strcmp(t->columns[twin].title, t->columns[c].twin) != 0) twin++;
    if (twin == t->ncolumns) return false;
    for (int64_t row = 0; row < t->nrows; row++)
        if (strcmp(cell_of(t, row, c, buf), cell_of(t, row, twin, other)) != 0) return false;
    return true;
}

static void decide(const struct pp_text_table *t, int c, struct becomes *f)
{
    const struct pp_text_column *column = &t->columns[c];
    const bool same = scan(t, c, f);
    if (strcmp(f->value, "-") == 0 || (same && column->usual && strcmp(f->value, column->usual) == 0) || has_twin(t, c))
        f->what = OUT;
    else
        f->what = same && !column->stays && (t->nrows > 1 || column->aside) ? TOLD : SHOWN;
}

/* --- headings --- */

/* The title, and the unit if there is one. */
static void write_heading(const char *title, const char *unit, char text[PP_CELL_BYTES])
{
    snprintf(text, PP_CELL_BYTES, "%s%s%s", title, unit ? " " : "", unit ? unit : "");
}

/* Sets the heading, in one line, or in two where that is narrower; and the width of the column. */
static void set_heading(const struct pp_text_column *column, bool two_lines, struct becomes *f)
{
    char text[PP_CELL_BYTES];
    write_heading(column->title, column->unit, text);
    int width = pp_text_width(text), cut = 0;
    for (int i = 1; text[i] && two_lines && width > f->cells; i++) {
        if (text[i] != ' ') continue;
        text[i] = '\0';
        const int above = pp_text_width(text), below = pp_text_width(text + i + 1),
                  wider = above > below ? above : below;
        text[i] = ' ';
        if (wider >= width) continue;
        width = wider;
        cut = i;
    }
    snprintf(f->heading[0], PP_CELL_BYTES, "%.*s", cut, text);
    snprintf(f->heading[1], PP_CELL_BYTES, "%s", text + cut + (cut > 0));
    f->width = width > f->cells ? width : f->cells;
}

static const char *group_of(const struct pp_text_table *t, int c)
{
    return t->columns[c].group ? t->columns[c].group : "";
}

/* Returns the end of the group that begins at column c. *room: the width of its columns that are shown, with the spaces
 * between them; *last: the last of these columns, -1 if there is none. */
static int group_end(const struct pp_text_table *t, const struct becomes *f, int c, int *room, int *last)
{
    int end = c;
    *room = -SEPARATOR;
    *last = -1;
    for (; end < t->ncolumns && strcmp(group_of(t, end), group_of(t, c)) == 0; end++) {
        if (f[end].what != SHOWN) continue;
        *room += SEPARATOR + f[end].width;
        *last = end;
    }
    return end;
}

/* A group that is wider than its columns widens the last of them. */
static void widen_groups(const struct pp_text_table *t, struct becomes *f)
{
    for (int c = 0, end, room, last; c < t->ncolumns; c = end) {
        end = group_end(t, f, c, &room, &last);
        const int width = pp_text_width(group_of(t, c));
        if (last >= 0 && room < width) f[last].width += width - room;
    }
}

/* --- room --- */

static int width_of(const struct pp_text_table *t, const struct becomes *f)
{
    int width = t->indent - SEPARATOR;
    for (int c = 0; c < t->ncolumns; c++)
        if (f[c].what == SHOWN) width += SEPARATOR + f[c].width;
    return width;
}

/* Leaves out columns until the table is narrow enough, or none of those that are left may go. */
static void make_room(const struct pp_text_table *t, struct becomes *f, FILE *out)
{
    const int terminal = pp_terminal_columns(out),
              room = terminal > PP_TEXT_TABLE_WIDTH ? terminal : PP_TEXT_TABLE_WIDTH;
    while (width_of(t, f) > room) {
        int most = 0;
        for (int c = 0; c < t->ncolumns; c++)
            if (f[c].what == SHOWN && t->columns[c].spare > most) most = t->columns[c].spare;
        if (most == 0) return;
        for (int c = 0; c < t->ncolumns; c++)
            if (f[c].what == SHOWN && t->columns[c].spare == most) f[c].what = SPARED;
        widen_groups(t, f);
    }
}

/* --- printing --- */

/* A line that is being printed. Spaces wait for the next text, so that lines do not end with any. */
struct line {
    FILE *out;
    int spaces;
};

static void put(struct line *line, const char *text, int width, bool left)
{
    const int rest = width - pp_text_width(text);
    if (!left) line->spaces += rest;
    if (*text) {
        fprintf(line->out, "%*s%s", line->spaces, "", text);
        line->spaces = 0;
    }
    if (left) line->spaces += rest;
}

static void print_groups(const struct pp_text_table *t, const struct becomes *f, FILE *out)
{
    static const char dashes[] =
        "----------------------------------------------------------------------------------------";
    struct line line = {out, t->indent};
    for (int c = 0, end, room, last; c < t->ncolumns; c = end) {
        end = group_end(t, f, c, &room, &last);
        if (last < 0) continue;
        const char *group = group_of(t, c);
        const int rule = room - pp_text_width(group) - 2; /* dashes beside " GROUP " */
        if (*group && rule > 0) {
            fprintf(out, "%*s%.*s %s %.*s", line.spaces, "", rule / 2, dashes, group, rule - rule / 2, dashes);
            line.spaces = 0;
        } else {
            put(&line, group, room, false);
        }
        line.spaces += SEPARATOR;
    }
    fputc('\n', out);
}

static void print_heading(const struct pp_text_table *t, const struct becomes *f, int i, FILE *out)
{
    struct line line = {out, t->indent};
    for (int c = 0; c < t->ncolumns; c++) {
        if (f[c].what != SHOWN) continue;
        put(&line, f[c].heading[i], f[c].width, t->columns[c].left);
        line.spaces += SEPARATOR;
    }
    fputc('\n', out);
}

static void print_row(const struct pp_text_table *t, const struct becomes *f, int64_t row, FILE *out)
{
    char buf[PP_CELL_BYTES];
    struct line line = {out, t->indent};
    for (int c = 0; c < t->ncolumns; c++) {
        if (f[c].what != SHOWN) continue;
        put(&line, cell_of(t, row, c, buf), f[c].width, t->columns[c].left);
        line.spaces += SEPARATOR;
    }
    fputc('\n', out);
}

/* Prints BEGIN and a list of the columns with one fate, and END, in lines; nothing if there are none. Columns
 * that are told have values. */
static void print_list(const struct pp_text_table *t, const struct becomes *f, enum fate fate, const char *begin,
                       const char *end, FILE *out)
{
    char buf[64 + 3 * PP_CELL_BYTES * PP_TEXT_COLUMNS], heading[PP_CELL_BYTES];
    struct pp_text text = pp_text_in(buf, sizeof buf);
    for (int c = 0; c < t->ncolumns; c++) {
        const struct pp_text_column *column = &t->columns[c];
        if (f[c].what != fate) continue;
        write_heading(column->title, fate == TOLD ? NULL : column->unit, heading);
        pp_text_add(&text, "%s%s%s%s", text.used ? ", " : begin, group_of(t, c), *group_of(t, c) ? " " : "", heading);
        write_heading(f[c].value, column->unit, heading);
        if (fate == TOLD) pp_text_add(&text, " %s", heading);
    }
    if (text.used == 0) return;
    pp_text_add(&text, "%s", end);
    fprintf(out, "%*s", t->indent, "");
    pp_wrap(out, buf, t->indent, t->indent + 2);
}

/* Sets headings in one line each, or in two. */
static void set_headings(const struct pp_text_table *t, bool two_lines, struct becomes *f)
{
    for (int c = 0; c < t->ncolumns; c++) set_heading(&t->columns[c], two_lines, &f[c]);
    widen_groups(t, f);
}

void pp_text_table_print(const struct pp_text_table *t, FILE *out)
{
    struct becomes f[PP_TEXT_COLUMNS] = {0};
    bool groups = false, two_lines = false;
    if (t->nrows == 0) return;
    for (int c = 0; c < t->ncolumns; c++) decide(t, c, &f[c]);
    set_headings(t, false, f);
    if (width_of(t, f) > PP_WRAP_COLUMNS) set_headings(t, true, f);
    make_room(t, f, out);
    for (int c = 0; c < t->ncolumns; c++) {
        groups |= f[c].what == SHOWN && *group_of(t, c);
        two_lines |= f[c].what == SHOWN && f[c].heading[0][0];
    }
    print_list(t, f, TOLD, "All: ", ".", out);
    if (groups) print_groups(t, f, out);
    if (two_lines) print_heading(t, f, 0, out);
    print_heading(t, f, 1, out);
    for (int64_t row = 0; row < t->nrows; row++) print_row(t, f, row, out);
    print_list(t, f, SPARED, "Left out, for lack of room: ", "; --format tsv has all.", out);
}
