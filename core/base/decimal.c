/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/decimal.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <strings.h>

bool pp_is_hexadecimal(const char *text)
{
    while (isspace((unsigned char)*text)) text++;
    text += *text == '-' || *text == '+';
    return strncasecmp(text, "0x", 2) == 0;
}

double pp_decimal(const char *text, char **end)
{
    const bool begins = (*text >= '0' && *text <= '9') || *text == '.';
    const double value = begins && !pp_is_hexadecimal(text) ? strtod(text, end) : NAN;
    if (isnan(value)) *end = (char *)text;
    return *end == text ? NAN : value;
}
