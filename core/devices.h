/* SPDX-License-Identifier: Apache-2.0
 *
 * What options, costs and predictions know of a device by its name. The rows: core/devices.def. What it offers to a run
 * is struct pp_backend (core/program.h).
 */
#ifndef PP_CORE_DEVICES_H
#define PP_CORE_DEVICES_H

#include <stdbool.h>

struct pp_device_kind {
    const char *name;    /* of --device */
    bool waits;          /* computes nothing: takes the time that it is given */
    bool queue;          /* has memory of its own, and works through queues: a GPU */
    const char *machine; /* for what was not measured; NULL: the one for hosts */
    int vocab_multiple;
};

extern const struct pp_device_kind pp_device_kinds[];
extern const int pp_ndevice_kinds;

/* The row of that name; for other names ("auto", a device of another ppkit's database) the cpu's. */
const struct pp_device_kind *pp_device_kind(const char *name);
/* The first that is a GPU. */
const struct pp_device_kind *pp_device_gpu(void);

/* Which GPU a worker of a host has: `workers` of them on `gpus`, 0 standing for as many as workers. Consecutive ones
 * share, so many on each. Here and not in a .c file: the backends in plugins call it too. */
static inline int pp_gpu_sharers(int workers, int gpus)
{
    return gpus > 0 && workers > gpus ? (workers + gpus - 1) / gpus : 1;
}

/* The most of the GPUs that the workers can be dealt out to evenly. */
static inline int pp_gpus_even(int workers, int gpus)
{
    while (workers % gpus) gpus--;
    return gpus;
}

/* Choices of --device: "auto|cpu|...". */
extern const char pp_device_names[];

#endif
