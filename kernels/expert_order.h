/* SPDX-License-Identifier: Apache-2.0
 *
 * In which order the experts of a tensor rank have their places.
 */
#ifndef PP_KERNELS_EXPERT_ORDER_H
#define PP_KERNELS_EXPERT_ORDER_H

#include "core/calls/call.h"
#include "kernels/host_device.h"

/* The first expert's places come first, unless expert ranks exchange them in pieces (pp_exchange_pieces()): then those
 * of a piece lie together, for one expert rank after the other. expert: counted from the tensor rank's first one, of
 * n->local. Returns its number in this order. */
static inline PP_HOST_DEVICE int pp_expert_number(const struct pp_route_dims *n, int expert)
{
    if (n->pieces <= 1) return expert;
    const int own = n->local / n->workers, each = own / n->pieces; /* of an expert rank; of these in a piece */
    const int worker = expert / own, piece = expert % own / each;
    return (piece * n->workers + worker) * each + expert % each;
}

#endif
