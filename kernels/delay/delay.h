/* SPDX-License-Identifier: Apache-2.0
 *
 * A device that computes nothing and waits as long as a task is said to take: plans run with real workers, messages and
 * traces, and as many ranks as one likes, on any machine.
 */
#ifndef PP_KERNELS_DELAY_DELAY_H
#define PP_KERNELS_DELAY_DELAY_H

#include "core/model/backend.h"

extern const struct pp_backend pp_backend_delay;

#endif
