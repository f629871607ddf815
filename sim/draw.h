/* SPDX-License-Identifier: Apache-2.0
 *
 * The timeline of one step as text: a line per rank, a column per slice of time.
 */
#ifndef PP_SIM_DRAW_H
#define PP_SIM_DRAW_H

#include <stdbool.h>
#include <stdio.h>

#include "sim/predict.h"

/* Columns of the terminal on standard output; 100 if that is no terminal. *colour: it is a terminal, and NO_COLOR is
 * not set. */
int pp_draw_width(bool *colour);

/* Writes which configuration is drawn. machine: NULL if only one is predicted for. */
void pp_draw_title(const struct pp_prediction *prediction, const char *machine, FILE *out);

/* Draws the trace of one step, which has the events of one worker of each rank. width: columns of a line. */
pp_status pp_draw(const struct pp_plan *plan, const struct pp_trace *trace, int width, bool colour,
                  FILE *out) PP_MUST_CHECK;

#endif
