/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/memory_text.h"

#include <stdio.h>

static const struct pp_memory_unit units[] = {{"KiB", 0x1p10, 1}, {"MiB", 0x1p20, 1}, {"GiB", 0x1p30, 2}};
enum { UNITS = sizeof units / sizeof *units, LEAST = 10 /* of a larger unit, before it is taken */ };

const struct pp_memory_unit *pp_memory_unit(double most_bytes)
{
    int i = 0;
    while (i + 1 < UNITS && most_bytes >= LEAST * units[i + 1].bytes) i++;
    return &units[i];
}

const char *pp_memory_text(double bytes, char buf[PP_MEMORY_TEXT])
{
    const struct pp_memory_unit *unit = pp_memory_unit(bytes);
    snprintf(buf, PP_MEMORY_TEXT, "%.*f %s", unit->decimals, bytes / unit->bytes, unit->name);
    return buf;
}
