/* SPDX-License-Identifier: Apache-2.0
 *
 * The longest times, in ns: with all its simulated steps, and slowed down, a simulation of the longest step stays below
 * 2^63.
 */
#ifndef PP_CORE_PLAN_LONGEST_H
#define PP_CORE_PLAN_LONGEST_H

#include <stdint.h>

#define PP_LONGEST_MEASURED_NS INT64_C(1000000000000000) /* 11 days: a longer time cannot have been measured */
#define PP_LONGEST_STEP_NS INT64_C(10000000000000000)    /* 115 days: simulations count no longer step */
#define PP_BEYOND_NS INT64_C(1000000000000000000)        /* stands for any time that is far longer than a step may be */

#endif
