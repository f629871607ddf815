/* SPDX-License-Identifier: Apache-2.0
 *
 * Cost classes: tasks of one kind, with the same stage (or the same part of it) and the same number of rows.
 */
#include <stdlib.h>

#include "schedules/building.h"

/* The index of a row count in distinct[], where it is added if it is new. */
static int32_t new_row(struct builder *b, int *distinct, int rows)
{
    int i = b->nrows;
    while (i > 0 && distinct[i - 1] != rows) i--;
    if (i > 0) return i - 1;
    distinct[b->nrows] = rows;
    return b->nrows++;
}

/* There are row counts of single microbatches, and (for batched W) of all microbatches of a slot. */
pp_status pp_builder_number_rows(struct builder *b)
{
    const struct pp_plan *plan = b->plan;
    int *distinct;
    PP_TRY(PP_NEW(&b->row_index, plan->microbatches));
    PP_TRY(PP_NEW(&b->slot_row_index, plan->microbatches));
    PP_TRY(PP_NEW(&distinct, 2 * plan->microbatches));
    for (int m = 0; m < plan->microbatches; m++) b->row_index[m] = new_row(b, distinct, plan->rows[m]);
    for (int m = 0; m < plan->microbatches; m += plan->slot_microbatches)
        b->slot_row_index[m] = new_row(b, distinct, pp_plan_slot_rows(plan, m));
    free(distinct);
    return PP_OK;
}

static int rows_of(const struct pp_plan *plan, int microbatch, int count)
{
    if (microbatch < 0) return 0;
    return count > 1 ? pp_plan_slot_rows(plan, microbatch) : plan->rows[microbatch];
}

static int row_number(const struct builder *b, int microbatch, int count)
{
    return microbatch < 0 ? 0 : count > 1 ? b->slot_row_index[microbatch] : b->row_index[microbatch];
}

static pp_status add_class(struct builder *b, const struct pp_class *class, int32_t *out)
{
    struct pp_plan *plan = b->plan;
    PP_TRY(PP_GROW(&plan->classes, plan->nclasses + 1, &b->class_room));
    plan->split_backward = plan->split_backward || class->kind == PP_W;
    plan->classes[plan->nclasses] = *class;
    *out = plan->nclasses++;
    return PP_OK;
}

pp_status pp_builder_class(struct builder *b, int kind, int stage, int microbatch, int count, int32_t *out)
{
    const struct pp_plan *plan = b->plan;
    const int64_t place = (int64_t)kind * (plan->stages + 1) + (stage < 0 ? plan->stages : stage);
    int32_t *id = &b->class_id[place * b->nrows + row_number(b, microbatch, count)];
    const struct pp_class class = {.kind = kind, .stage = stage, .rows = rows_of(plan, microbatch, count)};
    if (*id < 0) PP_TRY(add_class(b, &class, id));
    *out = *id;
    return PP_OK;
}

pp_status pp_builder_rounding_class(struct builder *b, const struct pp_task *task, int part, int parts, int32_t *out)
{
    const struct pp_class class = {.kind = task->kind,
                                   .stage = task->stage,
                                   .rows = rows_of(b->plan, task->microbatch, task->count),
                                   .part = part,
                                   .parts = parts > 1 ? parts : 0,
                                   .rounds = true};
    return add_class(b, &class, out);
}

pp_status pp_builder_part_class(struct builder *b, const struct pp_task *task, int part, int32_t *out)
{
    const int parts = b->parts[task->stage];
    if (parts == 1) return pp_builder_class(b, task->kind, task->stage, task->microbatch, task->count, out);
    const struct pp_class class = {.kind = task->kind,
                                   .stage = task->stage,
                                   .rows = rows_of(b->plan, task->microbatch, task->count),
                                   .part = part,
                                   .parts = parts};
    const int64_t place = (int64_t)task->kind * b->nparts + b->parts_before[task->stage] + part;
    int32_t *id = &b->part_class_id[place * b->nrows + row_number(b, task->microbatch, task->count)];
    if (*id < 0) PP_TRY(add_class(b, &class, id));
    *out = *id;
    return PP_OK;
}
