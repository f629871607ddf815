/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/launcher.h"

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

/* Set by mpirun, and by srun where it starts processes of MPI (--mpi=pmix, pmi2), in those processes, and by nobody
 * else. SLURM's own variables are also set in the script of a batch job, which runs once. */
static const char *const marks[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"};
static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};

static const char *first_set(const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (getenv(names[i])) return getenv(names[i]);
    return NULL;
}

bool pp_was_launched(void) { return first_set(marks, sizeof marks / sizeof *marks) != NULL; }

int pp_launched_processes(void)
{
    const char *text = first_set(sizes, sizeof sizes / sizeof *sizes);
    return text && pp_was_launched() ? atoi(text) : 1;
}

int pp_launched_rank(void)
{
    const char *text = first_set(ranks, sizeof ranks / sizeof *ranks);
    return text && pp_was_launched() ? atoi(text) : 0;
}

void pp_wait_for_launcher(void)
{
    enum { SECONDS = 2 };
    sleep(SECONDS);
}
