/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads numbers as people write them: strtod() also takes words and hexadecimal numbers.
 */
#ifndef PP_CORE_BASE_DECIMAL_H
#define PP_CORE_BASE_DECIMAL_H

#include <stdbool.h>

/* Does text begin with 0x, perhaps behind blanks and a sign? */
bool pp_is_hexadecimal(const char *text);

/* The plain decimal number >= 0 that text begins with; *end: behind it. NAN, and *end = text: there is none (a sign, a
 * word, a hexadecimal number). */
double pp_decimal(const char *text, char **end);

#endif
