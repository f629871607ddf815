/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/carrier.h"

const struct pp_carrier *const pp_carriers[] = {
#if PP_HAVE_NCCL
    &pp_carrier_nccl,
#endif
    &pp_carrier_staged,
    NULL,
};
