/* SPDX-License-Identifier: Apache-2.0
 *
 * Times of calls by the roofline of a machine. Layers, stages and pieces repeat the same calls, so what was computed
 * last for a call is kept, and found again by all that its work depends on.
 */
#ifndef PP_SIM_MACHINE_CALLS_H
#define PP_SIM_MACHINE_CALLS_H

#include "core/model/model.h"
#include "sim/machine.h"

/* What one worker has of the machine's rates. */
struct pp_rates {
    bool gpu;
    double flops_per_ns[PP_PRECISIONS], bytes_per_ns, loaded_bytes_per_ns, shared_bytes_per_ns;
    double peak_flops_per_ns[PP_PRECISIONS];
    struct pp_tiles tiles[PP_PRECISIONS];
    double attention_flops_per_ns[2]; /* of other software's kernels, forward and backward; 0: ppkit's count */
};

/* All that the work of a call depends on: see pp_call_work() in kernels/kernels.h. */
struct pp_call_key {
    int32_t kernel, precision, n[PP_CALL_DIMS];
    uint32_t operands; /* bit i: operand i has memory */
    bool adds;
};

/* Times of a call: with the bandwidth that a worker has alone, and with that while all others are busy. */
struct pp_roofline {
    double ns, loaded_ns;
};

struct pp_timed_call {
    struct pp_call_key key;
    bool known;
    struct pp_roofline times;
};

enum { PP_TIMED_CALLS = 256 };

/* Calls of one worker, of `sharers` that share a device. It is some tens of KiB. */
struct pp_machine_calls {
    const struct pp_machine *machine;
    const struct pp_model_ops *ops;
    struct pp_rates rates;
    struct pp_timed_call calls[PP_TIMED_CALLS]; /* a call's place follows from its key; a later one takes it over */
};

void pp_machine_calls_begin(struct pp_machine_calls *calls, const struct pp_machine *machine,
                            const struct pp_model_ops *ops, int sharers);

/* Time of a call: max(FLOPs / attainable FLOP/s of their precision, bytes / bandwidth). Matrix products take the time
 * of sim/product.h instead of the FLOPs, if the machine has tiles. call_overhead_ns and collectives are not
 * included. */
struct pp_roofline pp_machine_roofline(struct pp_machine_calls *calls, const struct pp_call *call);

/* The first of these, with call_overhead_ns (except for PP_JOIN_AWAIT). It has the form of pp_call_times.ns;
 * machine_calls: a struct pp_machine_calls. */
pp_status pp_machine_call_ns(void *machine_calls, const struct pp_call *call, double *out) PP_MUST_CHECK;

/* Time of one call's work, for a worker that has the device to itself, as pp_machine_roofline(). */
double pp_machine_work_ns(const struct pp_machine *machine, const struct pp_work *work);

#endif
