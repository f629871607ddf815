/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator whose other members never come: the thread that joins it is left behind, with all that it uses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "exec/nccl_line.h"
#include "kernels/backend.h"

static struct pp_nccl_line line; /* static: what is left behind is no leak */

static void a_queue_that_is_held_stays_open(void **state)
{
    (void)state;
    static const struct pp_processes alone = {.count = 1, .on_host = 1, .hosts = 1};
    const struct pp_device_spec spec = {.workers = 1, .on_host = 1, .threads = 1};
    struct pp_nccl_place place = {.ranks = 2, .use = PP_NCCL_SENDS, .blocks = 1};
    struct pp_port port = {0};
    assert_int_equal(pp_backend_find("cuda", &port.backend), PP_OK);
    assert_int_equal(port.backend->open(&spec, &port.device), PP_OK);
    assert_int_equal(pp_world_open(pp_transports[0], &alone, 1, 1, &port.world), PP_OK);
    assert_int_equal(pp_nccl_line_open(&line, &port), PP_OK);
    assert_int_equal(line.nccl->get_unique_id(&place.id), ncclSuccess);
    assert_false(atomic_load(&port.world->devices_held));
    pp_world_stop(port.world, PP_IO); /* as another worker that fails: nobody waits for the others any more */
    assert_int_equal(pp_nccl_line_join(&line, &place), PP_PEER);
    assert_true(atomic_load(&port.world->devices_held));
    pp_nccl_line_close(&line);
    assert_int_equal(cudaStreamQuery(line.stream), cudaSuccess);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_queue_that_is_held_stays_open)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
