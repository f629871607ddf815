/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether tests of the backend `cuda` run on an emulated device.
 */
#ifndef PP_TESTS_EMULATED_H
#define PP_TESTS_EMULATED_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Does PPKIT_CUDA_BACKEND name one of the two that are linked with the emulator? What its folders are called says
 * nothing. */
static inline bool is_emulated(void)
{
    const char *path = getenv("PPKIT_CUDA_BACKEND"), *slash = path ? strrchr(path, '/') : NULL;
    const char *file = slash ? slash + 1 : path;
    return file && (!strcmp(file, "ppkit-cuda-emulated.so") || !strcmp(file, "ppkit-cuda-races.so"));
}

#endif
