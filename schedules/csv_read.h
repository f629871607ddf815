/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads schedules in the CSV format of torch.distributed.pipelining (csv.h): one row per rank, one cell per action. An
 * action is "3F7" (stage, kind, microbatch), or a pair "(3F7;0B2)OVERLAP_F_B", whose two actions are run one after the
 * other here. Empty cells mean idle time.
 *
 * F, B, I and W make the order. The other actions of PyTorch's schedules with communication (SEND_F, RECV_F, SEND_B,
 * RECV_B, their WAIT_..., REDUCE_GRAD, UNSHARD, RESHARD) are accepted and ignored: the builder adds transfers and
 * collectives itself. Unlike PyTorch's reader this one refuses whatever it does not know.
 */
#ifndef PP_SCHEDULES_CSV_READ_H
#define PP_SCHEDULES_CSV_READ_H

#include <stdio.h>

#include "schedules/schedule.h"

struct pp_csv_schedule {
    int ranks, virtual_stages, stages, microbatches; /* P (rows of the file), V, P V, M */
    int *stage_rank;                                 /* [stages] */
    struct pp_order *orders;                         /* [ranks] */
};

/* Reads a file. PP_IO; PP_INPUT, with a message that names file, row and cell. It checks that every stage is on one
 * rank, and that all ranks have equally many; pp_plan_build_orders() checks that the orders are complete and can be
 * run. Release *out with pp_csv_free(), also after a failure. */
pp_status pp_csv_read(const char *path, struct pp_csv_schedule *out) PP_MUST_CHECK;
/* The same from a stream. name: that of the file, for messages. */
pp_status pp_csv_parse(FILE *in, const char *name, struct pp_csv_schedule *out) PP_MUST_CHECK;
void pp_csv_free(struct pp_csv_schedule *schedule);

#endif
