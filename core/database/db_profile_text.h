/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiles as text: what ppprof measured, in a form that can be kept in a repository. Lines are in a fixed order, so
 * that two profiles can be compared with diff. ppsim predicts from such a text without a database: from that of
 * --profile, and from those that are built into it for its machines. docs/FORMATS.md describes the lines.
 *
 * The text holds what predictions need: times of tasks by context, times of kernels over all tasks, the time that a
 * GPU's host needs to issue tasks, and the parameters of links and processes. Times of kernels in single tasks, and of
 * messages of single sizes, stay in the database.
 */
#ifndef PP_CORE_DATABASE_DB_PROFILE_TEXT_H
#define PP_CORE_DATABASE_DB_PROFILE_TEXT_H

#include <stdio.h>

#include "core/database/db.h"

/* Writes all profiles of the database, the oldest first. PP_INPUT if there is none. */
pp_status pp_profile_text_write(struct pp_db *db, FILE *out) PP_MUST_CHECK;

/* Adds the profiles of the text to a database that is open for writing. Look-ups (core/database/db.h) then find the
 * same there as in the database from which the text was written. PP_INPUT, with the number of the line, if a line is
 * not of such a text; the profiles before that line are then in the database. `where` names the text in messages. */
pp_status pp_profile_text_read(FILE *in, const char *where, struct pp_db *db) PP_MUST_CHECK;

#endif
