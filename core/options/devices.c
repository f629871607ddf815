/* SPDX-License-Identifier: Apache-2.0 */
#include "core/options/devices.h"

#include <stddef.h>
#include <string.h>

enum { COMPUTES, WAITS };
enum { HOST, OWN };

const struct pp_device_kind pp_device_kinds[] = {
#define PP_DEVICE(name, does, memory, machine, vocab_multiple)                                                         \
    {#name, does == WAITS, memory == OWN, machine, vocab_multiple},
#include "core/options/devices.def"
#undef PP_DEVICE
};

const int pp_ndevice_kinds = sizeof pp_device_kinds / sizeof *pp_device_kinds;

const char pp_device_names[] = "auto"
#define PP_DEVICE(name, does, memory, machine, vocab_multiple) "|" #name
#include "core/options/devices.def"
    ;

const struct pp_device_kind *pp_device_kind(const char *name)
{
    for (int i = 0; name && i < pp_ndevice_kinds; i++)
        if (strcmp(pp_device_kinds[i].name, name) == 0) return &pp_device_kinds[i];
    return &pp_device_kinds[0];
}

const struct pp_device_kind *pp_device_gpu(void)
{
    int i = 0;
    while (!pp_device_kinds[i].queue) i++;
    return &pp_device_kinds[i];
}
