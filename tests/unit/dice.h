/* SPDX-License-Identifier: Apache-2.0
 *
 * A small generator: the same numbers on every machine.
 */
#ifndef PP_TESTS_DICE_H
#define PP_TESTS_DICE_H

#include <stdint.h>

static inline uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static inline int random_below(uint64_t *state, int n) { return (int)(next_random(state) % (uint32_t)n); }

#endif
