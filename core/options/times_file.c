/* SPDX-License-Identifier: Apache-2.0 */
#include "core/options/times_file.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/decimal.h"

static bool exists(const char *path, size_t length)
{
    char name[PATH_MAX];
    return length < sizeof name && snprintf(name, sizeof name, "%.*s", (int)length, path) > 0 &&
           access(name, F_OK) == 0;
}

/* Without ",C", if a plain number stands there. */
static size_t name_length(const char *times)
{
    const char *comma = strrchr(times, ',');
    const size_t all = strlen(times);
    char *end;
    if (!comma || exists(times, all)) return all;
    (void)pp_decimal(comma + 1, &end);
    return end == comma + 1 || *end ? all : (size_t)(comma - times);
}

static bool begins_as_number(const char *text)
{
    const char *digit = text + (*text == '-' || *text == '+'); /* a number that will be refused */
    digit += *digit == '.';
    return *digit >= '0' && *digit <= '9';
}

size_t pp_times_file(const char *times)
{
    const size_t length = name_length(times);
    if (!begins_as_number(times)) return length;
    const bool only_numbers = times[strspn(times, "0123456789+-.,eE")] == '\0';
    return !only_numbers && exists(times, length) ? length : 0;
}
