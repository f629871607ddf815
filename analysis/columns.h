/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries whose rows are read into a struct: expressions and fields stand side by side in one list, so that neither
 * can be out of step with the other.
 *
 *     #define STAGE(X) X("r.stages", ranks) X("r.tensor", neighbours)
 *     static const char query[] = "SELECT " STAGE(PP_COLUMN_SQL) "t.kind FROM ...";
 *     int column = 0;
 *     STAGE(PP_COLUMN_READ)
 *
 * PP_COLUMN_SQL puts a comma behind each expression, so one more must follow. PP_COLUMN_READ reads the next column,
 * a whole number, of `statement` into the field of `*row`, an int64_t. PP_COLUMN_FIT does so, too, with fields that may
 * be smaller; where one has no room for the number `fits` becomes false.
 */
#ifndef PP_ANALYSIS_COLUMNS_H
#define PP_ANALYSIS_COLUMNS_H

#include <sqlite3.h>

#define PP_COLUMN_SQL(sql, field) sql ", "
#define PP_COLUMN_READ(sql, field) row->field = sqlite3_column_int64(statement, column++);
#define PP_COLUMN_FIT(sql, field)                                                                                      \
    row->field = (__typeof__(row->field))sqlite3_column_int64(statement, column);                                      \
    if (row->field != sqlite3_column_int64(statement, column++)) fits = false;

#endif
