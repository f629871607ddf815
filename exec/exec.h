/* SPDX-License-Identifier: Apache-2.0
 *
 * A run of the executor: what all its configurations share, and what comes out of each.
 */
#ifndef PP_EXEC_EXEC_H
#define PP_EXEC_EXEC_H

#include <stdio.h>

#include "core/database/db.h"
#include "core/job/job_row.h"
#include "exec/train.h"

struct pp_exec {
    struct pp_config config; /* with the vocabulary of the data */
    const struct pp_backend *backend;
    const struct pp_model_ops *model_ops;
    const struct pp_schedules *schedules;
    pp_init_tensor_fn init_tensor;
    const struct pp_transport *transport;
    const struct pp_carrier *carrier; /* what moves the memory of devices; NULL: the transport */
    struct pp_processes processes;
    struct pp_data *data;
    struct pp_db *db;      /* the first process's; else NULL */
    struct pp_db *profile; /* database from which a device that waits (pp_backend.waits) takes its times; else NULL */
    /* Sets the times of a job that was just made. NULL: not needed; the device computes, or --times gives them. */
    pp_status (*set_waits)(void *context, struct pp_job *job);
    void *set_waits_context;
    bool sweeps; /* there are several configurations: one that is impossible is left out */
    bool agreed; /* all processes end with the same failure, and know it: none needs to be aborted */
    bool mixed;  /* devices of the processes compute with other bits, so bits depend on which worker does what */
    char device_text[192];
};

/* The figures of one configuration (docs/FORMATS.md). It owns its arrays and `configuration`. */
struct pp_result {
    json_t *configuration; /* pp_job_row() */
    int ranks, workers, vocabulary;
    int first_step, first_epoch; /* step of losses[0], epoch of valid_losses[0] */
    int64_t parameters;
    uint64_t plan;
    struct pp_run_result stored; /* times, bubble, test loss; NAN where there is none */
    int64_t *peak_bytes;         /* [ranks] */
    int64_t *process_bytes;      /* [workers] resident bytes of a process at its first worker; 0 at its others */
    double taken; /* in the median traced step, the part of tasks' time in which others had the cores; NAN: not known */
    int nlosses, nvalid;
    double *losses, *valid_losses;
    bool complete; /* all of the above is there */
};

/* Text that must be equal, beside the accumulation key, for equal bits: the device, and the order of sums of
 * devices. */
enum { PP_BITS_TEXT = 320 };
void pp_exec_bits(const struct pp_exec *exec, const struct pp_plan *plan, char *buf, size_t size);

/* Runs one configuration. All processes call it; only the first gets a result. PP_USAGE where it is impossible: all
 * processes see the same then, and may go on with another. After any other failure of one process the others must be
 * aborted. The result is complete also where something failed that comes after the training: saving its weights, or
 * the database. */
pp_status pp_exec_point(struct pp_exec *exec, const struct pp_point *point, struct pp_result *out) PP_MUST_CHECK;
void pp_result_free(struct pp_result *result);
/* Prints n results in the form of config->format. config: what the user asked for, with its lists. */
pp_status pp_results_print(const struct pp_result *results, int n, const struct pp_config *config,
                           FILE *out) PP_MUST_CHECK;

#endif
