/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of text for terminals. The width does not depend on the terminal: a pipe gets the same bytes.
 */
#ifndef PP_CORE_BASE_WRAP_H
#define PP_CORE_BASE_WRAP_H

#include <stdio.h>

enum { PP_WRAP_COLUMNS = 80 };

/* Prints `text` word by word, and a newline. The first line begins at column `column`, where the caller has left off;
 * each further line begins with `indent` spaces. A word that is too long for a line has a line of its own. "%"
 * stays with the number before it. */
void pp_wrap(FILE *out, const char *text, int column, int indent);

/* The columns that a text takes on a terminal: one for each code point, so wide characters count too little. */
int pp_text_width(const char *text);

#endif
