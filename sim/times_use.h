/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes with --times.
 */
#ifndef PP_SIM_TIMES_USE_H
#define PP_SIM_TIMES_USE_H

#include "core/options/config.h"

/* Checks --times, and what else says how long tasks take (--machine, --profile), once for all points. A file of blocks
 * must have been read. PP_USAGE. */
pp_status pp_check_times(const struct pp_config *config) PP_MUST_CHECK;

#endif
