/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiles as text: what ppprof measured, without the database. For keeping in a repository (lines are in a fixed
 * order, so that two profiles can be compared with diff) and for predicting with no database and no device at hand
 * (ppsim --profile, and those that are inside ppsim for its machines). docs/FORMATS.md describes the lines.
 *
 * It holds what predictions need: task times by context, kernel times over all tasks, what issuing tasks takes a GPU's
 * host, and the figures of links and processes. Kernels of single tasks, and messages of single sizes, stay in the
 * database.
 */
#ifndef PP_CORE_DB_PROFILE_TEXT_H
#define PP_CORE_DB_PROFILE_TEXT_H

#include <stdio.h>

#include "core/db.h"

/* All profiles of the database, the oldest first. PP_INPUT if there is none. */
pp_status pp_profile_text_write(struct pp_db *db, FILE *out) PP_MUST_CHECK;

/* Adds the profiles of the text to a database that is open for writing: look-ups find there what they found where the
 * text came from. PP_INPUT with the number of the line where it is not such a text; what came before it is then in the
 * database. `where` names the text in messages. */
pp_status pp_profile_text_read(FILE *in, const char *where, struct pp_db *db) PP_MUST_CHECK;

#endif
