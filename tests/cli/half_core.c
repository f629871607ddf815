/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded into a program (LD_PRELOAD): its threads find that they had a core for half of the time only, as beside
 * busy neighbours.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <time.h>

static int (*next)(clockid_t, struct timespec *);

__attribute__((constructor)) static void find_next(void) { *(void **)&next = dlsym(RTLD_NEXT, "clock_gettime"); }

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *out)
{
    if (!next) find_next(); /* asked by a constructor before ours */
    const int result = next(clock, out);
    if (result != 0 || clock != CLOCK_THREAD_CPUTIME_ID) return result;
    const int64_t half = ((int64_t)out->tv_sec * 1000000000 + out->tv_nsec) / 2;
    *out = (struct timespec){.tv_sec = half / 1000000000, .tv_nsec = half % 1000000000};
    return 0;
}
