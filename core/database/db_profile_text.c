/* SPDX-License-Identifier: Apache-2.0 */
#include "core/database/db_profile_text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/printable.h"
#include "core/database/db_query.h"
#include "core/job/job.h"
#include "core/plan/longest.h"

#define HEADER "# ppkit profile 1"

static const char nothing[] = "-"; /* in place of an empty field */

enum { MOST_FIELDS = 11 };

/* Writing: the statements give the fields of a line in their order. */
#define WORD(x) "coalesce(nullif(replace(replace(" x ", char(9), ' '), char(10), ' '), ''), '-')"
#define NAME WORD("name")
#define CONTEXT WORD("context")
#define TASK WORD(PP_SQL_BEFORE_SHARE("context"))
#define SHARE "coalesce(nullif(trim(" PP_SQL_SHARE("context") "), ''), '-')"
#define RUN_WORDS WORD("started") ", " WORD("version") ", " WORD("status")
#define WORKLOAD WORD("workload")
#define DEVICE WORD("device") ", " WORD("device_text")
#define LINK WORD("link") ", " WORD("parameter")
#define NO_KERNELS "'all kernels', 'residual', 'reference', '" PP_SAMPLE_ISSUE "'"

static const char runs_sql[] =
    "SELECT id, " DEVICE ", cores, threads, processes, " RUN_WORDS
    ", CAST(round(coalesce(reference_ns, 0)) AS INTEGER), " WORKLOAD
    " FROM run WHERE id IN (SELECT run FROM task_time) AND cores > 0 AND threads > 0 AND processes > 0 ORDER BY id";

/* ?1: the run. */
static const struct part {
    const char *record, *sql;
} parts[] = {
    {"link", "SELECT " LINK ", value FROM link WHERE run = ?1 ORDER BY 1, 2"},
    {"task", "SELECT " NAME ", " CONTEXT ", load, count, " PP_SQL_EXPECTED
             ", median_ns, p5_ns, p95_ns FROM task_time WHERE run = ?1 ORDER BY 1, 2, 3"},
    {"issue", "SELECT " TASK ", " SHARE ", load, count, " PP_SQL_EXPECTED
              " FROM kernel_time WHERE run = ?1 AND name = '" PP_SAMPLE_ISSUE "' ORDER BY 1, 2, 3"},
    {"kernel", "SELECT " NAME " AS word, " SHARE " AS share, load, sum(count), " PP_SQL_WEIGHTED_MEAN
               " FROM kernel_time WHERE run = ?1 AND count > 0 AND name NOT IN (" NO_KERNELS
               ") GROUP BY word, share, load ORDER BY 1, 2, 3"},
};
enum { PARTS = sizeof parts / sizeof *parts };

/* The columns from the first-th on as a line. */
static pp_status write_line(sqlite3_stmt *row, const char *record, int first, FILE *out)
{
    fputs(record, out);
    for (int i = first; i < sqlite3_column_count(row); i++) {
        const int type = sqlite3_column_type(row, i);
        if (type == SQLITE_TEXT) {
            const char *text = (const char *)sqlite3_column_text(row, i);
            char *copy = text ? strdup(text) : NULL;
            if (!copy) return pp_fail(PP_NOMEM, "there is not enough memory to write the profile");
            fprintf(out, "\t%s", pp_printable(copy));
            free(copy);
        } else if (type == SQLITE_FLOAT) {
            fprintf(out, "\t%.17g", sqlite3_column_double(row, i));
        } else {
            fprintf(out, "\t%lld", (long long)sqlite3_column_int64(row, i));
        }
    }
    fputc('\n', out);
    return PP_OK;
}

static pp_status write_part(struct pp_db *db, int64_t run, const struct part *part, FILE *out)
{
    sqlite3_stmt *row;
    bool found;
    pp_status status;
    PP_TRY(pp_db_query(db, part->sql, PP_VALUES(PP_INT(run)), &row));
    PP_TRY_DONE(pp_db_row(db, row, &found));
    while (found) {
        PP_TRY_DONE(write_line(row, part->record, 0, out));
        PP_TRY_DONE(pp_db_row(db, row, &found));
    }
done:
    sqlite3_reset(row);
    return status;
}

pp_status pp_profile_text_write(struct pp_db *db, FILE *out)
{
    sqlite3_stmt *run;
    bool found;
    pp_status status;
    PP_TRY(pp_db_query(db, runs_sql, NULL, 0, &run));
    PP_TRY_DONE(pp_db_row(db, run, &found));
    if (!found) return pp_fail(PP_INPUT, "database %s: there is no profile in it; ppprof --db writes one", db->path);
    fputs(HEADER "\n", out);
    while (found) {
        PP_TRY_DONE(write_line(run, "run", 1, out));
        for (int i = 0; i < PARTS; i++) PP_TRY_DONE(write_part(db, sqlite3_column_int64(run, 0), &parts[i], out));
        PP_TRY_DONE(pp_db_row(db, run, &found));
    }
    fputs("end\n", out);
done:
    sqlite3_reset(run);
    return status;
}

/* Reading. */
struct reader {
    const char *where;
    int line;
    struct pp_db *db;
    int64_t run; /* 0: none yet */
    bool ended;
};

static pp_status bad(const struct reader *r, const char *why)
{
    return pp_fail(PP_INPUT, "profile %s, line %d: %s", r->where, r->line, why);
}

static pp_status read_integer(const struct reader *r, const char *text, int64_t least, int64_t most, int64_t *out)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < least || value > most)
        return pp_fail(PP_INPUT, "profile %s, line %d: \"%s\" is no whole number from %lld to %lld", r->where, r->line,
                       text, (long long)least, (long long)most);
    *out = value;
    return PP_OK;
}

/* n counts, one field after the other. */
static pp_status read_counts(const struct reader *r, char **fields, int n, int64_t *out)
{
    for (int i = 0; i < n; i++) PP_TRY(read_integer(r, fields[i], 1, INT32_MAX, &out[i]));
    return PP_OK;
}

static const char *word(const char *field) { return strcmp(field, nothing) == 0 ? "" : field; }

static pp_status take_run(struct reader *r, char **f)
{
    int64_t n[3], reference = 0;
    PP_TRY(read_counts(r, &f[3], 3, n));
    PP_TRY(read_integer(r, f[9], 0, PP_LONGEST_MEASURED_NS, &reference));
    PP_TRY(pp_db_execute(r->db,
                         "INSERT INTO run(tool, host, device, device_text, cores, threads, processes, started, "
                         "version, status, reference_ns, workload) "
                         "VALUES('ppprof', '', ?1, ?2, ?3, ?4, ?5, ?6, ?7, nullif(?8, ''), nullif(?9, 0), ?10)",
                         PP_VALUES(PP_TEXT(word(f[1])), PP_TEXT(word(f[2])), PP_INT(n[0]), PP_INT(n[1]), PP_INT(n[2]),
                                   PP_TEXT(word(f[6])), PP_TEXT(word(f[7])), PP_TEXT(word(f[8])), PP_INT(reference),
                                   PP_TEXT(word(f[10])))));
    r->run = sqlite3_last_insert_rowid(r->db->sql);
    return PP_OK;
}

static pp_status take_link(struct reader *r, char **f)
{
    char *end;
    double value = strtod(f[3], &end);
    if (end == f[3] || *end || !isfinite(value)) return bad(r, "the value of the link is no number");
    return pp_db_add_link(r->db, r->run, word(f[1]), word(f[2]), value);
}

static pp_status take_task(struct reader *r, char **f)
{
    int64_t n[2], ns[4] = {0};
    PP_TRY(read_counts(r, &f[3], 2, n));
    for (int i = 0; i < 4; i++) PP_TRY(read_integer(r, f[5 + i], 0, PP_LONGEST_MEASURED_NS, &ns[i]));
    const struct pp_quantiles known = {
        .count = n[1], .mean_ns = ns[0], .median_ns = ns[1], .p5_ns = ns[2], .p95_ns = ns[3], .min_ns = ns[2]};
    const struct pp_sample sample = pp_sample_of(f[1], word(f[2]), (int)n[0], &known);
    return pp_db_add_sample(r->db, r->run, PP_SAMPLE_TASK, &sample);
}

/* A kernel of whatever task, or `issue` of the task that is named before the share. */
static pp_status add_kernel(struct reader *r, const char *name, const char *task, char **f)
{
    char context[PP_SIGNATURE_BYTES + PP_CONTEXT_SIZE];
    const bool whole = strcmp(f[2], nothing) == 0;
    if (!whole && strncmp(f[2], "share ", 6) != 0) return bad(r, "the share of a GPU is neither - nor share 1/N");
    int64_t n[2], ns = 0;
    PP_TRY(read_counts(r, &f[3], 2, n));
    PP_TRY(read_integer(r, f[5], strcmp(name, PP_SAMPLE_GAP) == 0 ? -PP_LONGEST_MEASURED_NS : 0, PP_LONGEST_MEASURED_NS,
                        &ns));
    if (snprintf(context, sizeof context, "%s%s%s", task, whole ? "" : " ", whole ? "" : f[2]) >= (int)sizeof context)
        return bad(r, "the name of the task is too long");
    const struct pp_quantiles same = {
        .count = n[1], .mean_ns = ns, .median_ns = ns, .p5_ns = ns, .p95_ns = ns, .min_ns = ns};
    const struct pp_sample sample = pp_sample_of(name, context, (int)n[0], &same);
    return pp_db_add_sample(r->db, r->run, PP_SAMPLE_KERNEL, &sample);
}

static pp_status take_issue(struct reader *r, char **f) { return add_kernel(r, PP_SAMPLE_ISSUE, f[1], f); }
static pp_status take_kernel(struct reader *r, char **f) { return add_kernel(r, f[1], "", f); }

static pp_status take_end(struct reader *r, char **f)
{
    (void)f;
    r->ended = true;
    return PP_OK;
}

static const struct record {
    const char *name;
    int fields; /* with the name */
    pp_status (*take)(struct reader *r, char **fields);
} records[] = {{"run", 11, take_run},    {"link", 4, take_link},     {"task", 9, take_task},
               {"issue", 6, take_issue}, {"kernel", 6, take_kernel}, {"end", 1, take_end}};
enum { RECORDS = sizeof records / sizeof *records };

/* Cuts the line at its tabs; more than MOST_FIELDS count as one more. */
static int cut(char *line, char **fields)
{
    int n = 0;
    for (char *at = line; at && n <= MOST_FIELDS; n++) {
        char *tab = strchr(at, '\t');
        if (tab) *tab++ = '\0';
        if (n < MOST_FIELDS) fields[n] = at;
        at = tab;
    }
    return n;
}

static pp_status take_line(struct reader *r, char *line)
{
    char *fields[MOST_FIELDS];
    const int n = cut(line, fields);
    for (int i = 0; i < RECORDS; i++) {
        if (strcmp(records[i].name, fields[0]) != 0) continue;
        if (n != records[i].fields)
            return pp_fail(PP_INPUT, "profile %s, line %d: a line \"%s\" has %d field%s, not %d", r->where, r->line,
                           fields[0], records[i].fields, pp_plural(records[i].fields), n);
        for (int k = 0; k < n; k++)
            if (!*fields[k]) return bad(r, "a field is empty");
        if (i > 0 && r->run == 0) return bad(r, "no line \"run\" comes before it");
        if (r->ended) return bad(r, "it comes after the line \"end\"");
        return records[i].take(r, fields);
    }
    return bad(r, "it begins with no word that a profile knows");
}

enum { LINE_BYTES = 4096 };

static pp_status check_header(const struct reader *r, const char *line)
{
    const size_t n = strlen(HEADER);
    if (strcmp(line, HEADER) == 0) return PP_OK;
    if (strncmp(line, HEADER, n) == 0 && line[n] == '\r')
        return bad(r, "it ends in CR LF; convert the file to lines that end in LF");
    return bad(r, "it is not \"" HEADER "\"; ppreport --profiles writes such files, and --db reads databases");
}

/* Without its line feed; one that is cut by the end of the file has none. */
static pp_status check_bytes(const struct reader *r, char *line, bool at_end)
{
    size_t n = strlen(line);
    if (n > 0 && line[n - 1] == '\n')
        line[--n] = '\0';
    else if (!at_end)
        return bad(r, "it is too long, or there is a zero byte in it");
    for (size_t i = 0; i < n; i++)
        if (line[i] != '\t' && (line[i] < ' ' || line[i] > '~'))
            return bad(r, "there is a byte in it that is neither a tab nor printable ASCII");
    return PP_OK;
}

static pp_status read_lines(struct reader *r, FILE *in)
{
    char line[LINE_BYTES];
    while (fgets(line, sizeof line, in)) {
        if (r->line++ == 0) {
            line[strcspn(line, "\n")] = '\0';
            PP_TRY(check_header(r, line));
            continue;
        }
        PP_TRY(check_bytes(r, line, feof(in)));
        if (*line && *line != '#') PP_TRY(take_line(r, line));
    }
    if (!feof(in)) return pp_fail(PP_IO, "cannot read the profile %s: %s", r->where, strerror(errno));
    if (r->line == 0) return pp_fail(PP_INPUT, "profile %s: it is empty", r->where);
    if (!r->run) return bad(r, "there is no line \"run\" in it");
    return r->ended ? PP_OK : bad(r, "it is the last one and not \"end\": the file was cut short");
}

pp_status pp_profile_text_read(FILE *in, const char *where, struct pp_db *db)
{
    struct reader r = {.where = where, .db = db};
    PP_TRY(read_lines(&r, in));
    return pp_db_flush(db);
}
