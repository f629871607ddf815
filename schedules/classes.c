/* SPDX-License-Identifier: Apache-2.0
 *
 * Cost classes: tasks of one kind, with the same stage (or the same part of it), the same number of rows, and the
 * same use of gradients.
 */
#include <stdlib.h>

#include "schedules/building.h"

/* The index of a row count in distinct[], where it is added if it is new. */
static int32_t new_row(struct pp_builder *b, int *distinct, int rows)
{
    int i = b->nrows;
    while (i > 0 && distinct[i - 1] != rows) i--;
    if (i > 0) return i - 1;
    distinct[b->nrows] = rows;
    return b->nrows++;
}

/* There are row counts of single microbatches, and (for batched W) of all microbatches of a slot. */
pp_status pp_builder_number_rows(struct pp_builder *b)
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

static int rows_of(const struct pp_plan *plan, const struct pp_task *task)
{
    if (task->microbatch < 0) return 0;
    return task->count > 1 ? pp_plan_slot_rows(plan, task->microbatch) : plan->rows[task->microbatch];
}

static int row_number(const struct pp_builder *b, const struct pp_task *task)
{
    if (task->microbatch < 0) return 0;
    return task->count > 1 ? b->slot_row_index[task->microbatch] : b->row_index[task->microbatch];
}

/* parts: 1: the task is of a whole stage. */
static struct pp_class class_of(const struct pp_builder *b, const struct pp_task *task, int part, int parts)
{
    return (struct pp_class){.kind = task->kind,
                             .stage = task->stage,
                             .rows = rows_of(b->plan, task),
                             .part = part,
                             .parts = parts > 1 ? parts : 0,
                             .adds = pp_task_adds(b->plan, task)};
}

static pp_status add_class(struct pp_builder *b, const struct pp_class *class, int32_t *out)
{
    struct pp_plan *plan = b->plan;
    PP_TRY(PP_GROW(&plan->classes, plan->nclasses + 1, &b->class_room));
    plan->split_backward = plan->split_backward || class->kind == PP_W;
    plan->classes[plan->nclasses] = *class;
    *out = plan->nclasses++;
    return PP_OK;
}

/* ids: one of the builder's tables; place: in it, of the kind and of what is computed. */
static pp_status find_class(struct pp_builder *b, int32_t *ids, int64_t place, const struct pp_task *task,
                            const struct pp_class *class, int32_t *out)
{
    int32_t *id = &ids[(place * b->nrows + row_number(b, task)) * 2 + class->adds];
    if (*id < 0) PP_TRY(add_class(b, class, id));
    *out = *id;
    return PP_OK;
}

pp_status pp_builder_class(struct pp_builder *b, const struct pp_task *task, int32_t *out)
{
    const int stages = b->plan->stages;
    const int64_t place = (int64_t)task->kind * (stages + 1) + (task->stage < 0 ? stages : task->stage);
    const struct pp_class class = class_of(b, task, 0, 1);
    return find_class(b, b->class_id, place, task, &class, out);
}

pp_status pp_builder_rounding_class(struct pp_builder *b, const struct pp_task *task, int part, int parts, int32_t *out)
{
    struct pp_class class = class_of(b, task, part, parts);
    class.rounds = true;
    return add_class(b, &class, out);
}

pp_status pp_builder_part_class(struct pp_builder *b, const struct pp_task *task, int part, int32_t *out)
{
    const int parts = b->parts[task->stage];
    if (parts == 1) return pp_builder_class(b, task, out);
    const int64_t place = (int64_t)task->kind * b->nparts + b->parts_before[task->stage] + part;
    const struct pp_class class = class_of(b, task, part, parts);
    return find_class(b, b->part_class_id, place, task, &class, out);
}
