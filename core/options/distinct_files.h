/* SPDX-License-Identifier: Apache-2.0
 *
 * No file that a program writes is another one that it reads or writes. Else a run would replace its own database by
 * weights, or the text that it was trained on.
 */
#ifndef PP_CORE_OPTIONS_DISTINCT_FILES_H
#define PP_CORE_OPTIONS_DISTINCT_FILES_H

#include "core/options/config.h"

enum { PP_FOLDER_FILE_NAME = 64 };

/* Files that a program writes to a folder, under names that no option tells. */
struct pp_folder_files {
    const char *what; /* an option, or words for messages */
    const char *folder;
    int n;
    char (*names)[PP_FOLDER_FILE_NAME]; /* [n]; each begins with '/' */
};

/* Compares all files that the program reads or writes: those that options name, the files that belong to them (a
 * checkpoint, the journal of a database), the operand and the standard streams. Files that exist are compared by device
 * and number, so links do not deceive; others by the nearest folder that exists and their name in it. Devices and
 * folders are not compared. Nothing is created. --save may be the file of --init, which is read before.
 *
 * tool: one of enum pp_tool. operand: NULL if there is none. PP_USAGE names both. */
pp_status pp_check_distinct_files(const struct pp_config *config, unsigned tool, const char *operand) PP_MUST_CHECK;
/* The same, and these files too. */
pp_status pp_check_distinct_folder(const struct pp_config *config, unsigned tool, const char *operand,
                                   const struct pp_folder_files *folder) PP_MUST_CHECK;

#endif
