/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/printable.h"

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

const struct pp_cell *pp_table_cell(const struct pp_table *table, int64_t row, const char *key)
{
    for (int c = 0; c < table->ncolumns; c++)
        if (strcmp(table->columns[c].key, key) == 0) return &table->cells[row * table->ncolumns + c];
    return NULL;
}

bool pp_table_same(const struct pp_table *table, int64_t a, int64_t b, const char *const *keys, int n)
{
    for (int i = 0; i < n; i++) {
        const struct pp_cell *x = pp_table_cell(table, a, keys[i]), *y = pp_table_cell(table, b, keys[i]);
        if (x->integer != y->integer || strcmp(pp_cell_text(x), pp_cell_text(y)) != 0) return false;
    }
    return true;
}

double pp_cell_real(const struct pp_cell *cell) { return cell->type == SQLITE_NULL ? NAN : cell->real; }
int64_t pp_cell_integer(const struct pp_cell *cell) { return cell->type == SQLITE_NULL ? -1 : cell->integer; }
const char *pp_cell_text(const struct pp_cell *cell) { return cell->type == SQLITE_TEXT ? cell->text : ""; }

enum { CELL_BYTES = 64 };

/* One cell as people read it. */
static const char *show(const struct pp_column *column, const struct pp_cell *cell, char buf[CELL_BYTES])
{
    if (cell->type == SQLITE_NULL)
        snprintf(buf, CELL_BYTES, "-");
    else if (cell->type == SQLITE_TEXT)
        snprintf(buf, CELL_BYTES, "%s", cell->text);
    else if (column->scale != 0)
        snprintf(buf, CELL_BYTES, "%.*f", column->decimals, cell->real * column->scale);
    else
        snprintf(buf, CELL_BYTES, "%" PRId64, cell->integer);
    return buf;
}

static int column_width(const struct pp_table *table, int column, int64_t first, int64_t n)
{
    char buf[CELL_BYTES];
    size_t width = strlen(table->columns[column].heading);
    for (int64_t row = first; row < first + n; row++) {
        size_t used = strlen(show(&table->columns[column], &table->cells[row * table->ncolumns + column], buf));
        if (used > width) width = used;
    }
    return (int)width;
}

/* Text stands left, numbers right; a column with nothing in it follows its scale. */
static bool stands_left(const struct pp_table *table, int column, int64_t first, int64_t n)
{
    for (int64_t row = first; row < first + n; row++) {
        int type = table->cells[row * table->ncolumns + column].type;
        if (type != SQLITE_NULL) return type == SQLITE_TEXT;
    }
    return false;
}

/* Columns of the group that begins at `column`, and room they take. Hidden columns take none. */
static int group_span(const struct pp_table *table, int column, const int *width, int *columns)
{
    int room = 0, c = column;
    for (; c < table->ncolumns && strcmp(table->columns[c].group, table->columns[column].group) == 0; c++)
        if (table->columns[c].heading) room += width[c] + 2;
    *columns = c - column;
    return room;
}

static void print_groups(const struct pp_table *table, const int *width, FILE *out)
{
    static const char dashes[] = "--------------------------------------------------------------------------------";
    int columns;
    for (int c = 0; c < table->ncolumns; c += columns) {
        const char *text = table->columns[c].group;
        int room = group_span(table, c, width, &columns), length = (int)strlen(text);
        if (room == 0) continue;
        int rule = length ? room - 3 - length : -1; /* "-- text --" over the columns */
        if (rule < 0)
            fprintf(out, "%*s", room, text);
        else
            fprintf(out, " %.*s %s %.*s", rule / 2, dashes, text, rule - rule / 2, dashes);
    }
    fputc('\n', out);
}

pp_status pp_table_print(const struct pp_table *table, int64_t first, int64_t n, FILE *out)
{
    char buf[CELL_BYTES];
    int *width;
    bool *left;
    PP_TRY(PP_NEW(&width, table->ncolumns));
    pp_status status = PP_NEW(&left, table->ncolumns);
    if (status == PP_OK) {
        for (int c = 0; c < table->ncolumns; c++) {
            if (!table->columns[c].heading) continue;
            width[c] = column_width(table, c, first, n);
            left[c] = stands_left(table, c, first, n);
        }
        print_groups(table, width, out);
        for (int64_t row = first - 1; row < first + n; row++) {
            for (int c = 0; c < table->ncolumns; c++) {
                const struct pp_column *column = &table->columns[c];
                if (!column->heading) continue;
                const char *text =
                    row < first ? column->heading : show(column, &table->cells[row * table->ncolumns + c], buf);
                fprintf(out, "  %*s", left[c] ? -width[c] : width[c], text);
            }
            fputc('\n', out);
        }
    }
    free(left);
    free(width);
    return status;
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
        const struct pp_cell *cell = &table->cells[row * table->ncolumns + c];
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
