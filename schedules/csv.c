/* SPDX-License-Identifier: Apache-2.0 */
#include "schedules/csv.h"

#include <errno.h>

#include "core/base/new_file.h"

pp_status pp_plan_csv(const struct pp_plan *plan, FILE *out)
{
    for (int r = 0; r < plan->ranks; r++) {
        const char *separator = "";
        for (int64_t i = plan->issue_start[r]; i < plan->issue_start[r + 1]; i++) {
            const struct pp_task *task = &plan->tasks[pp_issue_task(plan->issue[i])];
            bool listed = task->kind == PP_F || task->kind == PP_B || task->kind == PP_I || task->kind == PP_W;
            if (!listed || task->flags & PP_TASK_MORE) continue;
            for (int k = 0; k < task->count; k++, separator = ",")
                fprintf(out, "%s%d%s%d", separator, task->stage, pp_kinds[task->kind].name, task->microbatch + k);
        }
        fputc('\n', out);
    }
    errno = 0;
    if (fflush(out) != 0 || ferror(out)) return pp_fail(PP_IO, "cannot write the CSV: %s", pp_write_error());
    return PP_OK;
}
