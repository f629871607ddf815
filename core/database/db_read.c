/* SPDX-License-Identifier: Apache-2.0
 *
 * Look-ups of measured times: the newest profile of the device wins.
 */
#include <stdio.h>
#include <string.h>

#include "core/database/db.h"
#include "core/database/db_query.h"

#define OF_DEVICE "run IN (SELECT id FROM run WHERE device = ?1 AND threads = ?2)"
/* Profiles that ended well come before those that were interrupted, and have few samples. */
#define ENDED_WELL "run IN (SELECT id FROM run WHERE status = 'ok')"
/* Text that is largest for the time of a task that a look-up takes, in a context: of a profile that ended well; in this
 * context; of the newest; with this schedule. */
#define LOOKED_UP(asked)                                                                                               \
    "printf('%d %d %012d %d %s', " ENDED_WELL ", context = " asked                                                     \
    ", run, " PP_SQL_SCHEDULE("context") " = " PP_SQL_SCHEDULE(asked) ", context)"
#define BEST_PROFILE "id IN (SELECT run FROM task_time) ORDER BY status IS 'ok' DESC, id DESC LIMIT 1"

/* A look-up is unlocked(db, LOOK_UP(locked(db), ...)). */
static struct pp_db *locked(struct pp_db *db)
{
    pp_db_lock(db);
    return db;
}

static pp_status unlocked(struct pp_db *db, pp_status status)
{
    pp_db_unlock(db);
    return status;
}

pp_status pp_db_find_task(struct pp_db *db, const struct pp_db_setting *setting, const char *signature, int load,
                          int64_t *ns, bool *found)
{
    return unlocked(
        db, pp_db_integer(locked(db),
                          "SELECT " PP_SQL_EXPECTED " FROM task_time WHERE name = ?3 AND load = ?4 AND " PP_SQL_SHARE(
                              "context") " = " PP_SQL_SHARE("?5") " AND " OF_DEVICE
                                                                  " ORDER BY " LOOKED_UP("?5") " DESC LIMIT 1",
                          PP_VALUES(PP_TEXT(setting->device), PP_INT(setting->threads), PP_TEXT(signature),
                                    PP_INT(load), PP_TEXT(setting->context)),
                          ns, found));
}

/* A context of PP_SAMPLE_ISSUE is the signature of a task and a share; '!' comes after the blank between them. */
pp_status pp_db_find_issue(struct pp_db *db, const struct pp_db_setting *setting, const char *signature, int load,
                           int64_t *ns, bool *found)
{
    return unlocked(
        db, pp_db_recall(locked(db),
                         "SELECT " PP_SQL_EXPECTED " FROM kernel_time WHERE name = '" PP_SAMPLE_ISSUE
                         "' AND context >= ?3 AND context < ?3 || '!' AND " PP_SQL_BEFORE_SHARE(
                             "context") " = ?3 AND " OF_DEVICE
                                        " ORDER BY " PP_SQL_SHARE("context") " = ?5 DESC, "
                                                                             "load = ?4 DESC, " ENDED_WELL
                                                                             " DESC, run DESC, context, load LIMIT 1",
                         PP_VALUES(PP_TEXT(setting->device), PP_INT(setting->threads), PP_TEXT(signature), PP_INT(load),
                                   PP_TEXT(pp_context_share(setting->context))),
                         ns, found));
}

pp_status pp_db_find_kernel(struct pp_db *db, const char *device, int threads, const char *name, int64_t *ns,
                            bool *found)
{
    return unlocked(db, pp_db_integer(locked(db),
                                      "SELECT " PP_SQL_WEIGHTED_MEAN
                                      " FROM kernel_time WHERE name = ?3 AND count > 0 AND " OF_DEVICE
                                      " GROUP BY run, load ORDER BY " ENDED_WELL " DESC, run DESC, load DESC LIMIT 1",
                                      PP_VALUES(PP_TEXT(device), PP_INT(threads), PP_TEXT(name)), ns, found));
}

/* Profiles of schema version 1 and 2 neither know gaps nor tell shares of a GPU apart. */
pp_status pp_db_find_kernel_mean(struct pp_db *db, const struct pp_db_setting *setting, const char *name, int load,
                                 int64_t *ns, bool *found)
{
    return unlocked(db, pp_db_recall(locked(db),
                                     "SELECT " PP_SQL_WEIGHTED_MEAN
                                     " FROM kernel_time WHERE name = ?3 AND load = ?5 AND " PP_SQL_SHARE(
                                         "context") " = ?4 AND count > 0 AND run IN (SELECT run FROM kernel_time WHERE "
                                                    "name = '" PP_SAMPLE_GAP "') AND " OF_DEVICE
                                                    " GROUP BY run ORDER BY " ENDED_WELL " DESC, run DESC LIMIT 1",
                                     PP_VALUES(PP_TEXT(setting->device), PP_INT(setting->threads), PP_TEXT(name),
                                               PP_TEXT(pp_context_share(setting->context)), PP_INT(load)),
                                     ns, found));
}

static pp_status find_link(struct pp_db *db, const struct pp_config *config, int processes, const char *link,
                           const char *parameter, double *value, bool *found)
{
    sqlite3_stmt *statement;
    char workload[PP_WORKLOAD_BYTES];
    PP_TRY(pp_db_workload(config, NULL, workload));
    PP_TRY(pp_db_query(db,
                       "SELECT value FROM link JOIN run ON run.id = link.run WHERE link = ?2 AND parameter = ?3 AND "
                       "device = ?1 ORDER BY workload = ?4 DESC, threads = ?5 DESC, "
                       "CASE WHEN ?6 > 0 THEN abs(processes - ?6) END, " ENDED_WELL " DESC, run DESC LIMIT 1",
                       PP_VALUES(PP_TEXT(config->device), PP_TEXT(link), PP_TEXT(parameter), PP_TEXT(workload),
                                 PP_INT(config->threads), PP_INT(processes)),
                       &statement));
    PP_TRY(pp_db_row(db, statement, found));
    if (*found) *value = sqlite3_column_double(statement, 0);
    sqlite3_reset(statement);
    return PP_OK;
}

pp_status pp_db_find_link(struct pp_db *db, const struct pp_config *config, int processes, const char *link,
                          const char *parameter, double *value, bool *found)
{
    return unlocked(db, find_link(locked(db), config, processes, link, parameter, value, found));
}

static pp_status newest_device(struct pp_db *db, char *buf, size_t size)
{
    sqlite3_stmt *statement;
    const char *text = NULL;
    bool found;
    PP_TRY(pp_db_query(db, "SELECT device FROM run WHERE " BEST_PROFILE, NULL, 0, &statement));
    PP_TRY(pp_db_row(db, statement, &found));
    if (found) PP_TRY(pp_db_text(db, statement, 0, &text));
    snprintf(buf, size, "%s", text ? text : "");
    sqlite3_reset(statement);
    return PP_OK;
}

pp_status pp_db_newest_device(struct pp_db *db, char *buf, size_t size)
{
    return unlocked(db, newest_device(locked(db), buf, size));
}

pp_status pp_db_has_profile(struct pp_db *db, const char *device, int *cores, bool *found)
{
    int64_t value = 0;
    PP_TRY(unlocked(db, pp_db_integer(locked(db), "SELECT cores FROM run WHERE device = ?1 AND " BEST_PROFILE,
                                      PP_VALUES(PP_TEXT(device)), &value, found)));
    if (*found) *cores = (int)value;
    return PP_OK;
}

pp_status pp_db_has_threads(struct pp_db *db, const char *device, int threads, bool *found)
{
    int64_t one;
    return unlocked(db, pp_db_integer(locked(db), "SELECT 1 FROM task_time WHERE " OF_DEVICE " LIMIT 1",
                                      PP_VALUES(PP_TEXT(device), PP_INT(threads)), &one, found));
}

pp_status pp_db_knows_words(struct pp_db *db, const char *device, int threads, const char *words, bool *found)
{
    int64_t one;
    return unlocked(db, pp_db_integer(locked(db),
                                      "SELECT 1 FROM task_time WHERE instr(name, ?3) > 0 AND " OF_DEVICE " LIMIT 1",
                                      PP_VALUES(PP_TEXT(device), PP_INT(threads), PP_TEXT(words)), &one, found));
}

static pp_status each_task(struct pp_db *db, const struct pp_db_setting *setting, const char *prefix, pp_db_task_fn fn,
                           void *arg)
{
    sqlite3_stmt *statement;
    bool found;
    PP_TRY(pp_db_query(
        db,
        "SELECT name, load, " PP_SQL_EXPECTED
        ", max(" LOOKED_UP("?4") ") FROM task_time WHERE "
                                 "name >= ?3 AND name < ?3 || '~' AND " PP_SQL_SHARE("context") " = " PP_SQL_SHARE(
                                     "?4") " AND " OF_DEVICE " GROUP BY name, load",
        PP_VALUES(PP_TEXT(setting->device), PP_INT(setting->threads), PP_TEXT(prefix), PP_TEXT(setting->context)),
        &statement));
    PP_TRY(pp_db_row(db, statement, &found));
    while (found) {
        const char *name;
        PP_TRY(pp_db_text(db, statement, 0, &name));
        if (name) fn(arg, name, sqlite3_column_int(statement, 1), sqlite3_column_int64(statement, 2));
        PP_TRY(pp_db_row(db, statement, &found));
    }
    return PP_OK;
}

pp_status pp_db_each_task(struct pp_db *db, const struct pp_db_setting *setting, const char *prefix, pp_db_task_fn fn,
                          void *arg)
{
    return unlocked(db, each_task(locked(db), setting, prefix, fn, arg));
}

void pp_db_share(struct pp_db *db, pthread_mutex_t *lock) { db->lock = lock; }

void pp_db_lock(struct pp_db *db)
{
    if (db->lock) pthread_mutex_lock(db->lock);
}

void pp_db_unlock(struct pp_db *db)
{
    if (db->lock) pthread_mutex_unlock(db->lock);
}

pp_status pp_db_open_updated(const char *path, struct pp_db **out)
{
    struct pp_db *writer;
    const pp_status status = pp_db_open(path, PP_DB_READ, out);
    if (status != PP_INPUT) return status;
    PP_TRY(pp_db_open(path, PP_DB_WRITE, &writer));
    PP_TRY(pp_db_close(writer));
    return pp_db_open(path, PP_DB_READ, out);
}
