/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/memory_text.h"
#include "core/base/printable.h"
#include "core/base/text_table.h"

static pp_status read_cell(sqlite3_stmt *statement, int column, struct pp_cell *cell)
{
    cell->type = sqlite3_column_type(statement, column);
    cell->integer = sqlite3_column_int64(statement, column);
    cell->real = sqlite3_column_double(statement, column);
    if (cell->type != SQLITE_TEXT) return PP_OK;
    const unsigned char *text = sqlite3_column_text(statement, column); /* NULL: no memory */
    cell->text = text ? strdup((const char *)text) : NULL;
    if (cell->text) pp_printable(cell->text);
    return cell->text ? PP_OK : pp_fail(PP_NOMEM, "there is not enough memory for a table");
}

pp_status pp_table_read(struct pp_db *db, sqlite3_stmt *statement, const struct pp_column *columns, int ncolumns,
                        struct pp_table *out)
{
    int64_t capacity = 0;
    bool found;
    *out = (struct pp_table){.columns = columns, .ncolumns = ncolumns};
    PP_TRY(pp_db_row(db, statement, &found));
    while (found) {
        PP_TRY(PP_GROW(&out->cells, (out->nrows + 1) * ncolumns, &capacity));
        struct pp_cell *row = &out->cells[out->nrows++ * ncolumns];
        memset(row, 0, (size_t)ncolumns * sizeof *row);
        for (int c = 0; c < ncolumns; c++) PP_TRY(read_cell(statement, c, &row[c]));
        PP_TRY(pp_db_row(db, statement, &found));
    }
    return PP_OK;
}

void pp_table_free(struct pp_table *table)
{
    for (int64_t i = 0; i < table->nrows * table->ncolumns; i++) free(table->cells[i].text);
    free(table->cells);
    *table = (struct pp_table){0};
}

static const struct pp_cell *cell_of(const struct pp_table *table, int64_t row, int column)
{
    return &table->cells[row * table->ncolumns + column];
}

double pp_table_real(const struct pp_table *table, int64_t row, int column)
{
    const struct pp_cell *cell = cell_of(table, row, column);
    return cell->type == SQLITE_NULL ? NAN : cell->real;
}

int64_t pp_table_integer(const struct pp_table *table, int64_t row, int column)
{
    const struct pp_cell *cell = cell_of(table, row, column);
    return cell->type == SQLITE_NULL ? -1 : cell->integer;
}

const char *pp_table_text(const struct pp_table *table, int64_t row, int column)
{
    const struct pp_cell *cell = cell_of(table, row, column);
    return cell->type == SQLITE_TEXT ? cell->text : "";
}

bool pp_table_same(const struct pp_table *table, int64_t a, int64_t b, const int *columns, int n)
{
    for (int i = 0; i < n; i++)
        if (cell_of(table, a, columns[i])->integer != cell_of(table, b, columns[i])->integer ||
            strcmp(pp_table_text(table, a, columns[i]), pp_table_text(table, b, columns[i])) != 0)
            return false;
    return true;
}

/* Some rows of a table as people read them. */
struct view {
    const struct pp_table *table;
    int64_t first;
    int columns[PP_TEXT_COLUMNS]; /* of the table, that have headings */
    struct pp_text_column texts[PP_TEXT_COLUMNS];
    const struct pp_memory_unit *units[PP_TEXT_COLUMNS]; /* of columns of bytes */
    int decimals[PP_TEXT_COLUMNS];                       /* of scaled columns */
    char groups[PP_TEXT_COLUMNS][PP_CELL_BYTES];         /* of columns of bytes, with the unit */
};

static const struct pp_cell *cell_at(const struct view *view, int64_t row, int i)
{
    return cell_of(view->table, view->first + row, view->columns[i]);
}

/* With dots where it does not fit. TSV and JSON have all of it. */
static void cut_off(const char *text, char buf[PP_CELL_BYTES])
{
    static const char dots[] = "...";
    if (snprintf(buf, PP_CELL_BYTES, "%s", text) >= PP_CELL_BYTES)
        memcpy(buf + PP_CELL_BYTES - sizeof dots, dots, sizeof dots);
}

static const char *show(const void *of, int64_t row, int i, char buf[PP_CELL_BYTES])
{
    const struct view *view = of;
    const struct pp_column *column = &view->table->columns[view->columns[i]];
    const struct pp_memory_unit *unit = view->units[i];
    const struct pp_cell *cell = cell_at(view, row, i);
    if (cell->type == SQLITE_NULL)
        snprintf(buf, PP_CELL_BYTES, "-");
    else if (cell->type == SQLITE_TEXT)
        cut_off(cell->text, buf);
    else if (unit)
        snprintf(buf, PP_CELL_BYTES, "%.*f", unit->decimals, cell->real / unit->bytes);
    else if (column->scale != 0)
        snprintf(buf, PP_CELL_BYTES, "%.*f", view->decimals[i], cell->real * column->scale);
    else
        snprintf(buf, PP_CELL_BYTES, "%" PRId64, cell->integer);
    return buf;
}

/* Text stands left, numbers right. */
static bool stands_left(const struct view *view, int64_t n, int i)
{
    for (int64_t row = 0; row < n; row++) {
        const int type = cell_at(view, row, i)->type;
        if (type != SQLITE_NULL) return type == SQLITE_TEXT;
    }
    return false;
}

/* The unit that fits the largest of all sizes of a column's group. */
static const struct pp_memory_unit *unit_of(const struct view *view, int64_t n, const char *group)
{
    const struct pp_table *table = view->table;
    double most = 0;
    for (int64_t row = view->first; row < view->first + n; row++)
        for (int c = 0; c < table->ncolumns; c++)
            if (table->columns[c].bytes && strcmp(table->columns[c].group, group) == 0)
                most = fmax(most, cell_of(table, row, c)->real);
    return pp_memory_unit(most);
}

enum { TIMES = 2, MOST_DECIMALS = 5 }; /* decimals of times in ms; times of the smallest models and steps have more */

/* Digits behind the point, so that the largest number of the column's group has four digits in all. */
static int decimals_of(const struct view *view, int64_t n, const struct pp_column *column)
{
    const struct pp_table *table = view->table;
    int decimals = column->decimals;
    double most = 0;
    if (decimals != TIMES) return decimals;
    for (int64_t row = view->first; row < view->first + n; row++)
        for (int c = 0; c < table->ncolumns; c++)
            if (table->columns[c].decimals == TIMES && strcmp(table->columns[c].group, column->group) == 0)
                most = fmax(most, fabs(cell_of(table, row, c)->real * table->columns[c].scale));
    for (double limit = 10; most > 0 && most < limit && decimals < MOST_DECIMALS; limit /= 10) decimals++;
    return decimals;
}

/* The settings of a configuration are told above the table where all rows have the same, also of one row; what was
 * measured or predicted stays in its columns. */
static void view_column(struct view *view, int64_t n, int i)
{
    const struct pp_column *column = &view->table->columns[view->columns[i]];
    const bool setting = i > 0 && !*column->group && column->scale == 0;
    view->texts[i] = (struct pp_text_column){.title = column->heading,
                                             .group = column->group,
                                             .left = stands_left(view, n, i),
                                             .stays = !setting,
                                             .aside = setting,
                                             .twin = column->twin,
                                             .usual = column->usual,
                                             .spare = column->spare};
    view->decimals[i] = decimals_of(view, n, column);
    if (!column->bytes) return;
    view->units[i] = unit_of(view, n, column->group);
    snprintf(view->groups[i], PP_CELL_BYTES, "%s %s", column->group, view->units[i]->name);
    view->texts[i].group = view->groups[i];
}

void pp_table_print(const struct pp_table *table, int64_t first, int64_t n, FILE *out)
{
    struct view view = {table, first};
    int columns = 0;
    for (int c = 0; c < table->ncolumns; c++) {
        if (!table->columns[c].heading) continue;
        view.columns[columns] = c;
        view_column(&view, n, columns++);
    }
    pp_text_table_print(&(struct pp_text_table){view.texts, columns, n, .indent = 2, .cell = show, .of = &view}, out);
}

void pp_table_print_tsv(const struct pp_table *table, FILE *out)
{
    for (int c = 0; c < table->ncolumns; c++) fprintf(out, "%s%s", c ? "\t" : "", table->columns[c].key);
    fputc('\n', out);
    for (int64_t i = 0; i < table->nrows * table->ncolumns; i++) {
        const struct pp_cell *cell = &table->cells[i];
        if (i % table->ncolumns) fputc('\t', out);
        if (cell->type == SQLITE_TEXT)
            fputs(cell->text, out);
        else if (cell->type == SQLITE_FLOAT)
            fprintf(out, "%.9g", cell->real);
        else if (cell->type == SQLITE_INTEGER)
            fprintf(out, "%" PRId64, cell->integer);
        if ((i + 1) % table->ncolumns == 0) fputc('\n', out);
    }
}

void pp_json_text(const char *text, FILE *out)
{
    fputc('"', out);
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if ((unsigned char)*c < 0x20)
            fprintf(out, "\\u%04x", (unsigned)*c);
        else
            fputc(*c, out);
    }
    fputc('"', out);
}

void pp_table_print_json(const struct pp_table *table, int64_t row, FILE *out)
{
    for (int c = 0; c < table->ncolumns; c++) {
        const struct pp_cell *cell = cell_of(table, row, c);
        fprintf(out, "%s\"%s\": ", c ? ", " : "", table->columns[c].key);
        if (cell->type == SQLITE_TEXT)
            pp_json_text(cell->text, out);
        else if (cell->type == SQLITE_FLOAT && isfinite(cell->real)) /* JSON knows no infinity */
            fprintf(out, "%.9g", cell->real);
        else if (cell->type == SQLITE_INTEGER)
            fprintf(out, "%" PRId64, cell->integer);
        else
            fputs("null", out);
    }
}
