/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PP_SIM_ROW_OPTIONS_H
#define PP_SIM_ROW_OPTIONS_H

#include <jansson.h>
#include <stdio.h>

#include "core/config.h"

/* Prints the options, as a shell takes them, with which `ppsim` predicts the same as a row (pp_row_create()) of
 * --workers, and nothing else: those that were given or that --auto has chosen, but of lists the row's own value.
 * schedule, machine: as they were given, since a row has labels of files; machine NULL: none was. */
void pp_row_options(const json_t *row, const struct pp_config *config, const char *schedule, const char *machine,
                    FILE *out);

#endif
