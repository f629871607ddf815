/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules as files: the CSV dialect of torch.distributed.pipelining (csv.h), read. One row per rank, one cell per
 * action: "3F7" (stage, kind, microbatch), or a pair "(3F7;0B2)OVERLAP_F_B", whose actions run one after the other.
 * Empty cells are idle. F, B, I and W make the order; what else PyTorch's schedules with communication hold (SEND_F,
 * RECV_F, SEND_B, RECV_B, their WAIT_..., REDUCE_GRAD, UNSHARD, RESHARD) is read and left out: the builder adds
 * transfers and reductions itself. Unlike PyTorch's reader this one takes nothing that it does not understand.
 */
#ifndef PP_SCHEDULES_CSV_READ_H
#define PP_SCHEDULES_CSV_READ_H

#include <stdio.h>

#include "schedules/schedule.h"

struct pp_csv_schedule {
    int ranks, virtual_stages, stages, microbatches; /* P rows, V stages on each, S = P*V, M */
    int *stage_rank;                                 /* [stages] */
    struct pp_order *orders;                         /* [ranks] */
};

/* PP_IO, PP_INPUT with a message that names file, row and cell. Every stage is on one rank and every rank has as many;
 * whether the orders are complete and can be run, pp_plan_build_orders() says. The caller frees *out, on failure too.
 */
pp_status pp_csv_read(const char *path, struct pp_csv_schedule *out) PP_MUST_CHECK;
/* The same from a stream; name: for messages. */
pp_status pp_csv_parse(FILE *in, const char *name, struct pp_csv_schedule *out) PP_MUST_CHECK;
void pp_csv_free(struct pp_csv_schedule *schedule);

#endif
