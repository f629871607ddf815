/* SPDX-License-Identifier: Apache-2.0
 *
 * A database that all programs have written to, and everything that they read from one. fuzz_database.c and
 * fuzz_rows.c change the one before the other.
 */
#ifndef PP_TESTS_FUZZ_DB_H
#define PP_TESTS_FUZZ_DB_H

#include <sqlite3.h>

#include "tests/fuzz/fuzz.h"

enum { FUZZ_TABLES = 32, FUZZ_NAME = 32 };

/* Runs that were predicted and measured, and a profile. free_values: columns take values of any type. */
void fuzz_db_make(int free_values);
/* The file as it was made. */
const uint8_t *fuzz_db_bytes(size_t *size);
/* The names of its tables, each of which has rows; returns how many there are. */
int fuzz_db_tables(char names[FUZZ_TABLES][FUZZ_NAME]);
/* Where the readers look. */
const char *fuzz_db_path(void);
/* What ppreport, ppsim and ppexec do with the file. */
void fuzz_db_read(void);
void fuzz_db_write(void);

#endif
