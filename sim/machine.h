/* SPDX-License-Identifier: Apache-2.0
 *
 * Machines that nothing was measured on: a JSON file each, also inside the program. sim/machines/README.md has the
 * fields.
 */
#ifndef PP_SIM_MACHINE_H
#define PP_SIM_MACHINE_H

#include <stdbool.h>
#include <stdio.h>

#include "core/program.h"
#include "sim/product.h"

struct pp_machine {
    bool of_file;                             /* of the user: its texts may be those of what it was copied from */
    char name[32], summary[128], source[256]; /* source: where the figures come from */
    int cores;                                /* shared by all workers; 0 = each worker has a device of its own */
    /* Attainable: peak of each enum pp_precision times its efficiency, of one core or device; 0: it has none. All have
     * fp32: what is no product is computed in it */
    double flops_per_ns[PP_PRECISIONS];
    double peak_flops_per_ns[PP_PRECISIONS];  /* the peak itself */
    struct pp_tiles tiles[PP_PRECISIONS];     /* how products reach it, where that is known */
    double bytes_per_ns, loaded_bytes_per_ns; /* memory, of one core or device: alone, and with all cores busy */
    double usable_bytes;                      /* memory that the workers of a device can have; 0: not known */
    double shared_bytes_per_ns;               /* inside all multiprocessors of a GPU; 0: does not count */
    double call_overhead_ns;                  /* of each kernel call */
    double issue_ns, issue_latency_ns;        /* of each kernel call, at the host; 0: the device is the host */
    double link_latency_ns, link_overhead_ns, link_bytes_per_ns;
    bool receiver_copies;                            /* the receiver's core moves the bytes */
    bool posts_in_order;                             /* a receive is posted at its place in the list */
    double reduce_latency_ns, reduce_bytes_per_ns;   /* gradient sum of two replicas */
    double reduce_takes;                             /* from what computes beside it: 0, to below 1 */
    int host_devices;                                /* that one host has; 0: one host holds all */
    double network_latency_ns, network_bytes_per_ns; /* from host to host, for each device; 0 where there is one host */
};

/* A name from the list below, or a JSON file if it contains '/' or ends in ".json". NULL: the default. PP_USAGE for
 * an unknown name; PP_INPUT for a file that is not as it should be, naming field and fault. A file's machine is called
 * by its label (core/file_label.h), whatever the file says. */
pp_status pp_machine_find(const char *name, struct pp_machine *out) PP_MUST_CHECK;

/* Reads JSON text. `where` names it in messages. */
pp_status pp_machine_parse(const char *text, size_t size, const char *where, struct pp_machine *out) PP_MUST_CHECK;

/* On standard error: whose figures they are; and once, where tasks were computed for GPUs: what that means. */
void pp_machine_tell(const struct pp_machine *machine);
void pp_machine_tell_sheet(void);

/* One line each, for --list. */
void pp_machine_list(FILE *out);

#endif
