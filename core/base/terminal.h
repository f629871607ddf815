/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PP_CORE_BASE_TERMINAL_H
#define PP_CORE_BASE_TERMINAL_H

#include <stdio.h>

/* Columns of the terminal that a file is; 0: it is none, or does not say. */
int pp_terminal_columns(FILE *file);

#endif
