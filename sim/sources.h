/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the times of rows come from: from measurements, or from a machine's data sheet.
 */
#ifndef PP_SIM_SOURCES_H
#define PP_SIM_SOURCES_H

#include "sim/row.h"

/* Numbers of rows in which something was computed by a data sheet: anything at all; times of tasks. */
struct pp_sources {
    int64_t any, tasks;
};

/* Of the n rows those of a target. */
struct pp_sources pp_sources_of(const struct pp_row *rows, int64_t n, int target);

/* Warns where configurations with times by a data sheet were ranked with others: `tasks` of the n rows that are shown
 * have such times. measured: a configuration, shown or not, has none. */
void pp_sources_warn(int64_t n, int64_t tasks, bool measured);

#endif
