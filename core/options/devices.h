/* SPDX-License-Identifier: Apache-2.0
 *
 * What options, costs and predictions know about a device (--device) from its name alone. core/options/devices.def has
 * the rows. How a run uses a device: struct pp_backend (core/model/backend.h).
 */
#ifndef PP_CORE_OPTIONS_DEVICES_H
#define PP_CORE_OPTIONS_DEVICES_H

#include <stdbool.h>

struct pp_device_kind {
    const char *name;    /* of --device */
    bool waits;          /* it computes nothing, and only waits as long as a task should take */
    bool queue;          /* it has memory of its own and works through queues (core/model/queue.h): a GPU */
    const char *machine; /* the machine (sim/machine.h) for times that were not measured; NULL: the default machine */
    int vocab_multiple;  /* pp_shape.vocab_multiple, unless --vocab-multiple was given */
};

extern const struct pp_device_kind pp_device_kinds[];
extern const int pp_ndevice_kinds;

/* The row of that name. Names that have none ("auto", a device in the database of another build) get the cpu's row. */
const struct pp_device_kind *pp_device_kind(const char *name);
/* The first row that is a GPU. */
const struct pp_device_kind *pp_device_gpu(void);

/* Number of consecutive workers that share a GPU, if `workers` workers of a host use `gpus` GPUs; gpus = 0: each worker
 * has a GPU. It is inline because backends in plugins call it, too. */
static inline int pp_gpu_sharers(int workers, int gpus)
{
    return gpus > 0 && workers > gpus ? (workers + gpus - 1) / gpus : 1;
}

/* The largest number of GPUs, at most `gpus`, that divides `workers`. */
static inline int pp_gpus_even(int workers, int gpus)
{
    while (workers % gpus) gpus--;
    return gpus;
}

/* Choices of --device: "auto|cpu|...". */
extern const char pp_device_names[];

#endif
