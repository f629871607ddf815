/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PP_SIM_ROW_OPTIONS_H
#define PP_SIM_ROW_OPTIONS_H

#include <jansson.h>

#include "core/options/config.h"

/* The options, as a shell takes them, with which `ppsim` predicts the same as a row (pp_row_create()) of a sweep, and
 * nothing else: those that were given or that --auto has chosen, but of lists the row's own value. config: of the row's
 * way and target (sim/ways.h, sim/targets.h). schedule: as it was given, since a row has labels of files. NULL: there
 * is no memory. It is printable text, whatever bytes a path has. */
json_t *pp_row_options(const json_t *row, const struct pp_config *config, const char *schedule);

#endif
