/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>

#include "sim/costs.h"

pp_status pp_check_figure(double value, double least, double most, const char *fmt, ...)
{
    char what[192];
    va_list args;
    if (value >= least && value <= most) return PP_OK;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return pp_fail(PP_INPUT, "the profile says that %s %.17g; measure again with ppprof", what, value);
}
