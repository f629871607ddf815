/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/base/text.h"
#include "core/options/main.h"
#include "schedules/builder.h"
#include "schedules/file.h"
#include "schedules/schedule.h"

#define PP_SCHEDULE(id) extern const struct pp_schedule pp_schedule_##id;
#include "schedules/schedules.def"
#undef PP_SCHEDULE

static const struct pp_schedule *const table[] = {
#define PP_SCHEDULE(id) &pp_schedule_##id,
#include "schedules/schedules.def"
#undef PP_SCHEDULE
};

enum { SCHEDULES = sizeof table / sizeof *table, NAME_BYTES = 24 /* most bytes of a name and "|" in names() */ };

const struct pp_schedule *pp_schedule_at(int i) { return i >= 0 && i < SCHEDULES ? table[i] : NULL; }

static bool is_called(const char *called, const char *name, size_t length)
{
    return called && strlen(called) == length && strncasecmp(called, name, length) == 0;
}

/* Reads the number behind the colon, which must be decimal digits alone. */
static bool read_number(const char *text, int *number)
{
    const size_t digits = strspn(text, "0123456789");
    *number = digits > 0 && digits < 10 && !text[digits] ? atoi(text) : 0;
    return *number >= 1 && *number <= PP_MOST_NUMBER;
}

const struct pp_schedule *pp_schedule_find(const char *name, int *number)
{
    static const char class[] = "Schedule";
    name += strncasecmp(name, class, sizeof class - 1) == 0 ? sizeof class - 1 : 0;
    const size_t length = strcspn(name, ":");
    *number = 0;
    if (name[length] && !read_number(name + length + 1, number)) return NULL;
    for (int i = 0; i < SCHEDULES; i++)
        if (is_called(table[i]->name, name, length) || is_called(table[i]->torch_name, name, length)) return table[i];
    return NULL;
}

static pp_status find(const char *name, struct pp_schedule_found *out)
{
    *out = (struct pp_schedule_found){0};
    const struct pp_schedule *schedule = pp_schedule_find(name, &out->number);
    out->name = schedule ? schedule->name : name;
    out->virtual_stages = schedule && schedule->virtual_stages != PP_ONE_STAGE ? 2 : 1;
    out->leaner = schedule ? schedule->leaner : NULL;
    if (schedule) return PP_OK;
    if (pp_schedule_is_file(name)) return pp_file_find(name, out);
    return pp_fail(PP_USAGE, "there is no schedule \"%s\"", name);
}

static bool timed(const char *name)
{
    int number;
    const struct pp_schedule *schedule = pp_schedule_find(name, &number);
    return schedule && schedule->timed;
}

static pp_status place(const char *name, int ranks, int virtual_stages, int *stage_rank)
{
    struct pp_schedule_shape shape = {
        .ranks = ranks, .virtual_stages = virtual_stages, .stages = ranks * virtual_stages, .training = true};
    const struct pp_schedule *schedule = pp_schedule_find(name, &shape.number);
    if (!schedule) return pp_file_place(name, shape.stages, stage_rank);
    for (int s = 0; s < shape.stages; s++) stage_rank[s] = pp_schedule_rank(schedule, &shape, s);
    return PP_OK;
}

static void list(FILE *out)
{
    for (int i = 0; i < SCHEDULES; i++) pp_list_row(out, table[i]->name, "%s", table[i]->summary);
}

static const char *names(void)
{
    static _Thread_local char buf[SCHEDULES * NAME_BYTES];
    struct pp_text text = pp_text_in(buf, sizeof buf);
    for (int i = 0; i < SCHEDULES; i++) pp_text_add(&text, "%s%s", pp_text_between(&text, "|"), table[i]->name);
    return buf;
}

const struct pp_schedules pp_schedules = {.build = pp_plan_build,
                                          .check = pp_schedule_check,
                                          .find = find,
                                          .timed = timed,
                                          .place = place,
                                          .list = list,
                                          .names = names};
