/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a process of ppexec whose device is the cpu, as far as a job says it before anything runs. What it does not
 * say (program, libraries, thread stacks, buffers of BLAS and MPI) ppprof measures; docs/MEMORY.md has the sum.
 */
#ifndef PP_CORE_PROCESS_H
#define PP_CORE_PROCESS_H

#include "core/job.h"

/* An arena is made of whole pages of this size, one that is smaller of small ones: all of them touched when it is
 * made. */
enum { PP_ARENA_PAGE_BYTES = 2 << 20, PP_ARENA_SMALL_PAGE_BYTES = 4096 };
int64_t pp_arena_whole_bytes(int64_t bytes);

/* Sums over replicas (exec/reduce.h): a worker has room for a few pieces of all others. most_bytes: of the largest sum,
 * which is cut into a slice for each member; a piece is no longer than that. */
enum { PP_REDUCE_PIECE_BYTES = 1 << 20, PP_REDUCE_WINDOW = 2, PP_REDUCE_LINE = 64 };
int64_t pp_reduce_piece_bytes(int members, int64_t most_bytes);
int64_t pp_reduce_staging_bytes(int members, int64_t most_bytes);
/* Gradients of the largest stage of a rank, of a set; a share of all sets. */
int64_t pp_most_gradient_bytes(const struct pp_job *job, int rank, enum pp_param_set set);
int64_t pp_most_share_bytes(const struct pp_job *job, int rank);

/* The largest sum over the workers of a group that a task has: they have room for its pieces. */
int64_t pp_most_joined_bytes(const struct pp_job *job, enum pp_join_group group);
/* The most that a task exchanges with the others of a group: what all of them send to one; the most pieces for each. */
int64_t pp_most_exchanged_bytes(const struct pp_job *job, enum pp_join_group group);
int pp_most_pieces(const struct pp_job *job, enum pp_join_group group);

/* Of one worker: arena, room for sums, a copy of its weights where the run evaluates, traced events. */
int64_t pp_process_worker_bytes(const struct pp_job *job, int worker);
/* Of a process: plans and programs; in the first also the events of all workers, which are collected at the end. */
int64_t pp_process_table_bytes(const struct pp_job *job, bool first);

#endif
