/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a connection.
 */
#include <stdlib.h>

#include "core/database/db_query.h"

pp_status pp_db_flush(struct pp_db *db)
{
    if (sqlite3_get_autocommit(db->sql)) return PP_OK;
    return pp_db_finish(db, PP_OK);
}

pp_status pp_db_end(struct pp_db *db)
{
    if (!db) return PP_OK;
    const pp_status status = db->sql ? pp_db_flush(db) : PP_OK;
    for (int i = 0; i < db->nstatements; i++) sqlite3_finalize(db->statement[i].handle);
    db->nstatements = 0;
    sqlite3_close(db->sql);
    db->sql = NULL;
    return status;
}

pp_status pp_db_close(struct pp_db *db)
{
    if (!db) return PP_OK;
    const pp_status status = pp_db_end(db);
    pp_db_forget(db);
    free(db->path);
    free(db);
    return status;
}

pp_status pp_db_close_after(struct pp_db *db, pp_status status)
{
    struct pp_failure failure;
    (void)pp_keep(&failure, status);
    const pp_status closed = pp_db_close(db);
    return status == PP_OK ? closed : pp_fail_again(&failure);
}
