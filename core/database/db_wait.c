/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting for another process that writes to the file.
 */
#include <time.h>

#include "core/base/clock.h"
#include "core/database/db_query.h"

static const int64_t patience_ns = 30000000000, hurried_ns = 300000000;

/* SQLite asks whether to try once more, after `tries` times for the same lock. */
static int wait_more(void *waiting, int tries)
{
    static const struct timespec first = {.tv_nsec = 1000000}, later = {.tv_nsec = 25000000};
    struct pp_db *db = waiting;
    const int64_t now = pp_now_ns();
    if (tries == 0) db->wait_ns = now;
    if (now - db->wait_ns > (db->hurries && db->hurries() ? hurried_ns : patience_ns)) return 0;
    nanosleep(tries < 10 ? &first : &later, NULL);
    return 1;
}

void pp_db_wait(struct pp_db *db) { sqlite3_busy_handler(db->sql, wait_more, db); }

void pp_db_hurry(struct pp_db *db, bool (*hurries)(void)) { db->hurries = hurries; }
