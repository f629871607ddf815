/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a process of ppexec on the cpu, as far as it follows from the job. The rest (program, libraries, thread
 * stacks, buffers of BLAS and MPI) is measured by ppprof; docs/MEMORY.md has the sum.
 */
#ifndef PP_CORE_JOB_PROCESS_H
#define PP_CORE_JOB_PROCESS_H

#include "core/job/job.h"

/* An allocation for an arena or for staging has whole pages of PP_ARENA_PAGE_BYTES, or, if it is smaller than one such
 * page, whole small pages. All pages are touched when it is made. Returns `bytes` rounded up accordingly. */
enum { PP_ARENA_PAGE_BYTES = 2 << 20, PP_ARENA_SMALL_PAGE_BYTES = 4096 };
int64_t pp_arena_whole_bytes(int64_t bytes);

/* Staging memory of collectives (exec/reduce.h). A collective on n members is cut into n slices, one for each member,
 * and a slice into pieces. A worker has room for PP_REDUCE_WINDOW pieces of each other member. most_bytes: bytes of the
 * largest collective. */
enum { PP_REDUCE_PIECE_BYTES = 1 << 20, PP_REDUCE_WINDOW = 2, PP_REDUCE_LINE = 64 };
int64_t pp_reduce_piece_bytes(int members, int64_t most_bytes);
int64_t pp_reduce_staging_bytes(int members, int64_t most_bytes);
/* Float32 bytes of the largest REDUCE_GRAD of one of the rank's stages, for the parameters of a set; and of the largest
 * REDUCE_SHARE, for all sets. They count the stage as a whole, also if it is summed in parts. */
int64_t pp_most_gradient_bytes(const struct pp_job *job, int rank, enum pp_param_set set);
int64_t pp_most_share_bytes(const struct pp_job *job, int rank);

/* The largest collectives of one kind of group inside tasks (core/plan/join.h), in all programs of a job. */
struct pp_most_joined {
    int64_t bytes;           /* all to all not counted */
    int64_t exchanged_bytes; /* of all to all: of all pieces of one worker */
    int pieces;              /* the most that a worker sends to each other one there (pp_join_call.each) */
};
struct pp_most_joined pp_job_most_joined(const struct pp_job *job, enum pp_join_group group);

/* Do tasks of the rank join numbers of this type (enum pp_sum_type) in this kind of group? */
bool pp_rank_joins(const struct pp_job *job, int rank, enum pp_join_group group, int type);

/* Bytes of one worker: arena, staging, the best weights so far (if it evaluates), traced events. joined: bytes of
 * staging for collectives inside tasks, pp_process_joined_bytes(), the same for all workers of a job. */
int64_t pp_process_joined_bytes(const struct pp_job *job);
int64_t pp_process_worker_bytes(const struct pp_job *job, int64_t joined, int worker);
/* Bytes of one process beside its workers: plans and programs. The first process also has the events of all workers,
 * which it collects at the end. */
int64_t pp_process_table_bytes(const struct pp_job *job, bool first);

#endif
