/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether operands of two calls share memory, in any context rank.
 */
#ifndef PP_TESTS_CALL_OVERLAP_H
#define PP_TESTS_CALL_OVERLAP_H

#include "kernels/kernels.h"

/* Bytes from an operand's lower place on. */
static inline int64_t touched_bytes(const struct pp_call *call, int i)
{
    const struct pp_operand operand = pp_call_operand(call, i);
    return operand.elements * operand.element_bytes + call->ref[i].step_bytes;
}

/* Operands i of a and k of b; what lies nowhere shares nothing. */
static inline bool overlap(const struct pp_call *a, int i, const struct pp_call *b, int k)
{
    const struct pp_ref *at = &a->ref[i], *other = &b->ref[k];
    return at->region == other->region && at->region != PP_MEM_NONE &&
           at->offset < other->offset + touched_bytes(b, k) && other->offset < at->offset + touched_bytes(a, i);
}

#endif
