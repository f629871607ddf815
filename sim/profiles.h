/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiles as text (core/db_profile_text.h): of a file, or those that came with ppkit for its machines. A file
 * profiles/MACHINE-WHATEVER.tsv of the source is inside the program and belongs to --machine MACHINE.
 */
#ifndef PP_SIM_PROFILES_H
#define PP_SIM_PROFILES_H

#include <stdio.h>

#include "core/db.h"

/* Into a database in memory, the caller's to close. PP_INPUT for a file that is none, or cannot be opened. */
pp_status pp_profiles_of_file(const char *path, struct pp_db **out) PP_MUST_CHECK;
/* *out = NULL: nothing was measured on a machine of this name. */
pp_status pp_profiles_of_machine(const char *machine, struct pp_db **out) PP_MUST_CHECK;

/* One line each, for --list. */
void pp_profiles_list(FILE *out);

#endif
