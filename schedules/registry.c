/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "schedules/builder.h"
#include "schedules/schedule.h"

#define PP_SCHEDULE(id) extern const struct pp_schedule pp_schedule_##id;
#include "schedules/schedules.def"
#undef PP_SCHEDULE

static const struct pp_schedule *const table[] = {
#define PP_SCHEDULE(id) &pp_schedule_##id,
#include "schedules/schedules.def"
#undef PP_SCHEDULE
};

enum { SCHEDULES = sizeof table / sizeof *table };

const struct pp_schedule *pp_schedule_at(int i) { return i >= 0 && i < SCHEDULES ? table[i] : NULL; }

const struct pp_schedule *pp_schedule_find(const char *name)
{
    for (int i = 0; i < SCHEDULES; i++)
        if (strcasecmp(table[i]->name, name) == 0) return table[i];
    return NULL;
}

static bool find(const char *name, bool *virtual_stages)
{
    const struct pp_schedule *schedule = pp_schedule_find(name);
    if (schedule) *virtual_stages = schedule->virtual_stages;
    return schedule != NULL;
}

static void list(FILE *out)
{
    for (int i = 0; i < SCHEDULES; i++) fprintf(out, "  %-14s %s\n", table[i]->name, table[i]->summary);
}

static const char *names(void)
{
    static _Thread_local char text[512];
    text[0] = '\0';
    for (int i = 0; i < SCHEDULES; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s", i ? "|" : "", table[i]->name);
    }
    return text;
}

const struct pp_schedules pp_schedules = {
    .build = pp_plan_build, .check = pp_schedule_check, .find = find, .list = list, .names = names};
