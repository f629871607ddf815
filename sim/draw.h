/* SPDX-License-Identifier: Apache-2.0
 *
 * The timeline of one step as text: a line per rank, a column per slice of time.
 */
#ifndef PP_SIM_DRAW_H
#define PP_SIM_DRAW_H

#include <stdbool.h>
#include <stdio.h>

#include "core/plan.h"
#include "core/trace.h"

/* Columns of the terminal on standard output, or 100; *colour: it is a terminal that may be coloured (NO_COLOR is not
 * set). */
int pp_draw_width(bool *colour);

/* events of workers 0 .. ranks-1 of one step. width: of a whole line. */
pp_status pp_draw(const struct pp_plan *plan, const struct pp_trace *trace, int width, bool colour,
                  FILE *out) PP_MUST_CHECK;

#endif
