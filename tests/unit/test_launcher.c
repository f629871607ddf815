/* SPDX-License-Identifier: Apache-2.0
 *
 * What the environment says of launchers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/launcher.h"

static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PMI_SIZE",
                                    "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"};

static void forget(void)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

static void expect(bool launched, int processes, int rank)
{
    assert_int_equal(pp_was_launched(), launched);
    assert_int_equal(pp_launched_processes(), processes);
    assert_int_equal(pp_launched_rank(), rank);
}

static void a_process_of_its_own_is_the_first_and_only_one(void **state)
{
    (void)state;
    forget();
    expect(false, 1, 0);
    setenv("SLURM_STEP_NUM_TASKS", "8", 1); /* a shell of a batch job, and srun without MPI */
    setenv("SLURM_PROCID", "3", 1);
    expect(false, 1, 0);
}

static void mpirun_says_which_of_how_many(void **state)
{
    (void)state;
    forget();
    setenv("OMPI_COMM_WORLD_SIZE", "6", 1);
    setenv("OMPI_COMM_WORLD_RANK", "4", 1);
    setenv("SLURM_PROCID", "0", 1); /* of the batch job that mpirun was started in */
    expect(true, 6, 4);
}

static void srun_says_it_too(void **state)
{
    (void)state;
    forget();
    setenv("SLURM_STEP_NUM_TASKS", "8", 1);
    setenv("SLURM_PROCID", "3", 1);
    setenv("PMIX_RANK", "3", 1);
    expect(true, 8, 3);
    forget();
    setenv("PMI_SIZE", "4", 1);
    setenv("PMI_RANK", "2", 1);
    expect(true, 4, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_of_its_own_is_the_first_and_only_one),
        cmocka_unit_test(mpirun_says_which_of_how_many),
        cmocka_unit_test(srun_says_it_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
