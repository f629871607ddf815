/* SPDX-License-Identifier: Apache-2.0
 *
 * Jobs and their costs, for the tests of costs.
 */
#ifndef PP_TESTS_COST_CASE_H
#define PP_TESTS_COST_CASE_H

#include <stdio.h>
#include <unistd.h>

#include "kernels/model.h"
#include "schedules/schedule.h"
#include "tests/unit/sim_case.h"

static struct pp_config config;

static inline struct pp_job *create_job(const char *options)
{
    static char text[512];
    char *argv[64] = {(char *)"ppsim"};
    int argc = 1, n;
    struct pp_point *points;
    struct pp_job *job;
    snprintf(text, sizeof text, "%s", options);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    if (pp_config_parse(PP_PPSIM, argc, argv, &config, NULL) != PP_OK) fail_msg("%s", pp_message());
    assert_int_equal(pp_points(&config, &pp_schedules, &points, &n), PP_OK);
    if (pp_job_create(&config, &points[0], &pp_schedules, &pp_model_ops, false, NULL, &job) != PP_OK)
        fail_msg("%s", pp_message());
    free(points);
    return job;
}

enum { UNIT = 1000 }; /* ns for each row in the made-up profile */

static inline struct pp_cost *cost_of(const struct pp_job *job, struct pp_db *db, struct pp_cost_origin *origin)
{
    struct pp_machine m;
    struct pp_cost *cost;
    assert_int_equal(pp_machine_find("cpu", &m), PP_OK);
    if (pp_cost_from_profile(job, db, &m, &cost, origin) != PP_OK) fail_msg("%s", pp_message());
    return cost;
}

/* Links 1 us and 100 bytes/ns, sums 3 us and 200 bytes/ns, between hosts 5 us and 10 bytes/ns for each device. */
static inline struct pp_machine round_machine(int host_devices)
{
    struct pp_machine m;
    assert_int_equal(pp_machine_find("h100", &m), PP_OK);
    m.host_devices = host_devices;
    m.link_latency_ns = 1000, m.link_bytes_per_ns = 100;
    m.reduce_latency_ns = 3000, m.reduce_bytes_per_ns = 200;
    m.network_latency_ns = 5000, m.network_bytes_per_ns = 10;
    return m;
}

#endif
