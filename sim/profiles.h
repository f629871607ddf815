/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiles that are only read: a file, as text (core/database/db_profile_text.h) or as a database, or the texts that
 * ppkit has for its machines. A file profiles/MACHINE-WHATEVER.tsv of the source is embedded in the program, and
 * belongs to --machine MACHINE.
 */
#ifndef PP_SIM_PROFILES_H
#define PP_SIM_PROFILES_H

#include "core/base/json.h"
#include "core/database/db.h"

/* Opens a database for reading, or reads a text into one in memory; the caller closes it. PP_INPUT if the file cannot
 * be opened, or is no profile; PP_IO. */
pp_status pp_profiles_of_file(const char *path, struct pp_db **out) PP_MUST_CHECK;
/* The same for all profiles of a machine; *out = NULL if there are none. */
pp_status pp_profiles_of_machine(const char *machine, struct pp_db **out) PP_MUST_CHECK;

/* Rows of the embedded profiles for --list (core/options/listing.h). */
json_t *pp_profiles_list(void);

#endif
