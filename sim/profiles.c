/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/profiles.h"

#include <errno.h>
#include <string.h>

#include "core/base/log.h"
#include "core/database/db_profile_text.h"
#include "core/database/db_query.h"
#include "core/options/listing.h"
#include "sim/embedded.h"

/* The index is for pp_db_find_issue(): the profiles of a machine have thousands of such times. */
static pp_status open_memory(struct pp_db **db)
{
    if (*db) return PP_OK;
    PP_TRY(pp_db_open(":memory:", PP_DB_WRITE, db));
    return pp_db_execute(*db, "CREATE INDEX kernel_time_by_context ON kernel_time (name, context)", NULL, 0);
}

/* Does it begin as a database of SQLite? A text begins otherwise, and may come from a pipe. */
static bool is_database(FILE *file)
{
    const int first = fgetc(file);
    return first != EOF && ungetc(first, file) == 'S';
}

static pp_status read_file(const char *path, struct pp_db **out)
{
    FILE *file = fopen(path, "rb");
    if (!file) return pp_fail(PP_INPUT, "cannot open the profile %s: %s", path, strerror(errno));
    const bool database = is_database(file);
    pp_status status = PP_OK;
    if (ferror(file))
        status = pp_fail(PP_IO, "cannot read the profile %s: %s", path, strerror(errno));
    else
        status = database ? pp_db_open(path, PP_DB_READ, out) : open_memory(out);
    if (status == PP_OK && !database) status = pp_profile_text_read(file, path, *out);
    fclose(file);
    return status;
}

static pp_status read_embedded(const struct pp_embedded *profile, struct pp_db **out)
{
    const size_t size = strlen(profile->text);
    FILE *file = fmemopen((char *)profile->text, size ? size : 1, "rb"); /* it is only read */
    if (!file) return pp_fail(PP_NOMEM, "there is not enough memory to read the profile %s", profile->name);
    pp_status status = open_memory(out);
    if (status == PP_OK) status = pp_profile_text_read(file, profile->name, *out);
    fclose(file);
    return status;
}

static pp_status close_if(pp_status status, struct pp_db **db)
{
    if (status == PP_OK) return PP_OK;
    (void)pp_db_close(*db); /* nothing was written */
    *db = NULL;
    return status;
}

pp_status pp_profiles_of_file(const char *path, struct pp_db **out)
{
    *out = NULL;
    return close_if(read_file(path, out), out);
}

static bool belongs(const struct pp_embedded *profile, const char *machine)
{
    const size_t n = strlen(machine);
    return strncmp(profile->name, machine, n) == 0 && profile->name[n] == '-';
}

pp_status pp_profiles_of_machine(const char *machine, struct pp_db **out)
{
    pp_status status = PP_OK;
    *out = NULL;
    for (const struct pp_embedded *p = pp_embedded_profiles; p->name && status == PP_OK; p++) {
        if (!belongs(p, machine)) continue;
        pp_info("measured times: profile %s", p->name);
        status = read_embedded(p, out);
    }
    return close_if(status, out);
}

enum { RUN_DEVICE = 1, RUN_DATE = 6, RUN_WORKLOAD = 10, DATE_CHARACTERS = 10 }; /* columns of "run": docs/FORMATS.md */

/* Copies column i of the line, cut off to fit. */
static void copy_column(const char *line, int i, char *out, size_t size)
{
    while (i-- > 0) {
        line += strcspn(line, "\t\n");
        line += *line == '\t';
    }
    snprintf(out, size, "%.*s", (int)strcspn(line, "\t\n"), line);
}

/* The row of a profile, from its first run. */
static json_t *list_profile(const struct pp_embedded *p)
{
    static const char start[] = "\nrun\t";
    char device[16], date[DATE_CHARACTERS + 1], workload[80], summary[128];
    const char *run = strstr(p->text, start);
    if (!run) return pp_list_row(p->name, "");
    copy_column(run + 1, RUN_DEVICE, device, sizeof device);
    copy_column(run + 1, RUN_DATE, date, sizeof date);
    copy_column(run + 1, RUN_WORKLOAD, workload, sizeof workload);
    snprintf(summary, sizeof summary, "%s, %s: %s", device, date, workload);
    return pp_list_row(p->name, summary);
}

json_t *pp_profiles_list(void)
{
    json_t *rows = json_array();
    for (const struct pp_embedded *p = pp_embedded_profiles; p->name; p++) rows = pp_json_append(rows, list_profile(p));
    return rows;
}
