/* SPDX-License-Identifier: Apache-2.0
 *
 * Look-ups of measured times: the newest profile of the device wins.
 */
#include "core/db.h"
#include "core/db_private.h"

pp_status pp_db_find_task(struct pp_db *db, const char *device, int threads, const char *signature, int load, int64_t *median_ns,
                          bool *found)
{
    return pp_db_integer(db, PP_SQL_FIND_TASK, PP_VALUES(PP_TEXT(device), PP_INT(threads), PP_TEXT(signature), PP_INT(load)),
                         median_ns, found);
}

pp_status pp_db_find_link(struct pp_db *db, const char *device, const char *link, const char *parameter, double *value, bool *found)
{
    sqlite3_stmt *statement;
    PP_TRY(pp_db_query(db, PP_SQL_FIND_LINK, PP_VALUES(PP_TEXT(device), PP_TEXT(link), PP_TEXT(parameter)), &statement));
    PP_TRY(pp_db_row(db, statement, found));
    if (*found) *value = sqlite3_column_double(statement, 0);
    sqlite3_reset(statement);
    return PP_OK;
}

pp_status pp_db_has_profile(struct pp_db *db, const char *device, int *cores, bool *found)
{
    int64_t value = 0;
    PP_TRY(pp_db_integer(db, PP_SQL_FIND_PROFILE, PP_VALUES(PP_TEXT(device)), &value, found));
    if (*found) *cores = (int)value;
    return PP_OK;
}

pp_status pp_db_each_task(struct pp_db *db, const char *device, int threads, const char *prefix, pp_db_task_fn fn, void *arg)
{
    sqlite3_stmt *statement;
    bool found;
    PP_TRY(pp_db_query(db, PP_SQL_EACH_TASK, PP_VALUES(PP_TEXT(device), PP_INT(threads), PP_TEXT(prefix)), &statement));
    PP_TRY(pp_db_row(db, statement, &found));
    while (found) {
        fn(arg, (const char *)sqlite3_column_text(statement, 0), sqlite3_column_int(statement, 1), sqlite3_column_int64(statement, 2));
        PP_TRY(pp_db_row(db, statement, &found));
    }
    return PP_OK;
}
