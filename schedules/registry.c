/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/base/text.h"
#include "core/options/listing.h"
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

enum { SMALL_RANKS = 2, SMALL_MICROBATCHES = 8 };

/* One that all schedules can do, and in which they look as in all others. */
static struct pp_schedule_shape small_shape(const struct pp_schedule *schedule)
{
    const int virtual_stages = schedule->virtual_stages == PP_ONE_STAGE ? 1 : 2;
    return (struct pp_schedule_shape){.ranks = SMALL_RANKS,
                                      .virtual_stages = virtual_stages,
                                      .stages = SMALL_RANKS * virtual_stages,
                                      .microbatches = SMALL_MICROBATCHES,
                                      .training = true};
}

/* Does it split backwards into I and W? Its orders say it. NULL if memory is short. */
static json_t *backward(const struct pp_schedule *schedule)
{
    const struct pp_schedule_shape shape = small_shape(schedule);
    struct pp_order orders[SMALL_RANKS] = {0};
    bool splits = false;
    const pp_status status = schedule->orders ? schedule->orders(&shape, orders) : schedule->order(&shape, 0, orders);
    for (int64_t i = 0; i < orders[0].n; i++) splits = splits || orders[0].ops[i].kind == PP_I;
    for (int r = 0; r < shape.ranks; r++) free(orders[r].ops);
    return status == PP_OK ? json_string(splits ? "split" : "whole") : NULL;
}

static json_t *stage_ranks(const struct pp_schedule *schedule)
{
    const struct pp_schedule_shape shape = small_shape(schedule);
    json_t *ranks = json_array();
    for (int s = 0; s < shape.stages; s++)
        ranks = pp_json_append(ranks, json_integer(pp_schedule_rank(schedule, &shape, s)));
    return ranks;
}

/* docs/FORMATS.md says what the fields mean. */
static json_t *list_schedule(const struct pp_schedule *schedule)
{
    static const char *const numbers[] = {[PP_NUMBER_HELD] = "held", [PP_NUMBER_IN_TURN] = "in turn"};
    static const int stages[] = {[PP_ONE_STAGE] = 1, [PP_TWO_STAGES] = 2};
    const bool any = schedule->virtual_stages == PP_ANY_STAGES, plain = schedule->number == PP_NO_NUMBER;
    json_t *row = pp_list_row(schedule->name, schedule->summary);
    row = pp_json_set(row, "virtual", any ? json_null() : json_integer(stages[schedule->virtual_stages]));
    row = pp_json_set(row, "stage_ranks", stage_ranks(schedule));
    row = pp_json_set(row, "backward", backward(schedule));
    row = pp_json_set(row, "number", plain ? json_null() : json_string(numbers[schedule->number]));
    return pp_json_set(row, "timed", json_boolean(schedule->timed));
}

static json_t *list(void)
{
    json_t *rows = json_array();
    for (int i = 0; i < SCHEDULES; i++) rows = pp_json_append(rows, list_schedule(table[i]));
    return rows;
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
