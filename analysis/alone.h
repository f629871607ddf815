/* SPDX-License-Identifier: Apache-2.0
 *
 * Configurations that were predicted and not measured, or measured and not predicted: how many there are, and why the
 * two runs did not find each other.
 */
#ifndef PP_ANALYSIS_ALONE_H
#define PP_ANALYSIS_ALONE_H

#include "analysis/compare.h"

/* Writes such remarks to the log. table: of pp_compare_read(). */
void pp_alone_notes(const struct pp_table *table);

#endif
