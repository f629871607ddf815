/* SPDX-License-Identifier: Apache-2.0
 *
 * Machines: data sheets from which times are computed that were not measured. Each is a JSON file, which is also
 * embedded in the program; sim/machines/README.md explains its fields.
 */
#ifndef PP_SIM_MACHINE_H
#define PP_SIM_MACHINE_H

#include <stdbool.h>
#include <stdio.h>

#include "core/base/json.h"
#include "core/base/status.h"
#include "core/options/config.h"
#include "core/shape/work.h"
#include "sim/product.h"

struct pp_machine {
    bool of_file; /* it comes from a file of the user; summary and source may be copied from another machine */
    char name[32], summary[128], source[256]; /* source: where the figures come from */
    int cores; /* cores that all workers share; 0 = each worker has a device of its own */
    /* FLOP/ns of one core or device in each precision (enum pp_precision): attainable, which is the peak times an
     * efficiency, and the peak. 0: the machine does not have the precision. All machines have fp32, in which everything
     * but products is computed. */
    double flops_per_ns[PP_PRECISIONS];
    double peak_flops_per_ns[PP_PRECISIONS];
    struct pp_tiles tiles[PP_PRECISIONS];     /* how products reach the peak, if that is known (sim/product.h) */
    double bytes_per_ns, loaded_bytes_per_ns; /* memory bandwidth of one core or device: alone, with all cores busy */
    double usable_bytes;                      /* memory of a device for its workers; 0: not known */
    double shared_bytes_per_ns;               /* bandwidth inside all multiprocessors of a GPU; 0: it does not count */
    /* Shares of bf16's peak that attention on tensor cores reaches in other software, forward and backward; 0: not
     * known. They count in place of what ppkit's own kernels reach if library_attention is true. */
    double attention[2];
    bool library_attention;
    double call_overhead_ns;                  /* time added to each kernel call */
    double issue_ns;                          /* GPUs: host time to issue a kernel call; else 0 */
    double issue_latency_ns;                  /* GPUs: from there until the device sees it */
    double link_latency_ns, link_overhead_ns, link_bytes_per_ns; /* transfers: struct pp_link_cost */
    bool receiver_copies, posts_in_order;                        /* struct pp_link_cost */
    double reduce_latency_ns, reduce_bytes_per_ns;               /* all-reduce inside a host */
    double reduce_takes;                                         /* pp_cost.taken */
    int host_devices;                                            /* devices of one host; 0: one host has all */
    double network_latency_ns, network_bytes_per_ns;             /* between hosts, for each device; 0 with one host */
};

/* Finds the machine of --machine: an embedded one by its name, or a JSON file if the name contains '/' or ends in
 * ".json". NULL: the default machine. The machine of a file is named by the label of the file (core/base/file_label.h),
 * whatever the file says. PP_USAGE for an unknown name; PP_INPUT for a bad file, with a message that names field and
 * fault. */
pp_status pp_machine_find(const char *name, struct pp_machine *out) PP_MUST_CHECK;

/* Makes attention's times those of other software, and tells so in the machine's name. PP_USAGE if they are not known.
 */
pp_status pp_machine_take_library(struct pp_machine *machine) PP_MUST_CHECK;

/* Parses the JSON text of a machine. where: its name for messages. PP_INPUT. */
pp_status pp_machine_parse(const char *text, size_t size, const char *where, struct pp_machine *out) PP_MUST_CHECK;

/* Remarks on standard error: which machine the times are of and where its figures come from; and, for times of GPUs
 * from a data sheet, how far to trust them for such a model (sim/machine_tell.c). */
void pp_machine_tell(const struct pp_machine *machine);
void pp_machine_tell_sheet(const struct pp_machine *machine, const struct pp_config *config);

/* Rows of the embedded machines for --list (core/options/listing.h). */
json_t *pp_machine_list(void);

#endif
