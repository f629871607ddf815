/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts: which of them get a token, the way of the tokens to their places and back, and gates. How to read these
 * blocks: core/calls/call.h.
 */
#ifndef PP_CORE_CALLS_CALLS_EXPERTS_H
#define PP_CORE_CALLS_CALLS_EXPERTS_H

#include "core/calls/operand.h"

PP_DIMS(sigmoid, tokens);

/* sigmoid: x = 1 / (1 + exp(-x))
 *     x   in/out  [tokens] float
 */
PP_OPERANDS(sigmoid, x);

/* sigmoid_grad: dx = dy y (1 - y), of y = sigmoid(x)
 *     dx   out  [tokens]
 *     dy   in   [tokens] float
 *     y    in   [tokens] float
 */
PP_OPERANDS(sigmoid_grad, dx, dy, y);

/* How routers make probabilities and gates: bits of the dimension `rules`. */
enum pp_route_rules {
    PP_ROUTE_OF_ALL =
        1, /* gates are the probabilities as they are; else divided by the sum of the token's chosen ones */
    PP_ROUTE_GROUP_BY_BEST = 4, /* a group's score is the highest one of its experts; else the sum of the two highest */
    PP_ROUTE_SIGMOID = 2        /* each probability is the logistic function of its logit; else they are a softmax */
};
/* With PP_ROUTE_SIGMOID sums of probabilities may be 0, so this is added before they divide. */
#define PP_ROUTE_TINY 1e-20f

struct pp_route_scalars {
    float gate_scale; /* times the gates */
    float aux;        /* route_grad: weight of the loss that evens out the experts' load */
    int32_t groups,
        picked; /* route: equal groups of successive experts, and of how many a token may choose; 0: of all */
};

/* experts: of all workers; chosen: choices of a token; capacity: places of an expert; local: experts of the worker,
 * from tensor_rank * local on; rules: enum pp_route_rules; workers, pieces: expert ranks that have an equal part of
 * these each, and pieces into which a part is cut (kernels/expert_order.h), 0 and 1: it is whole */
PP_DIMS(route, rows, seq, experts, chosen, capacity, local, rules, workers, pieces);

/* route: probabilities = softmax(logits), or sigmoid(logits). The score of an expert is its probability plus its bias.
 * A token chooses the experts of its greatest scores, the greatest first, of equal ones the lower number; scores that
 * are no numbers come last. Where there are groups, it chooses from the `picked` groups of the greatest scores alone,
 * of equal ones those of lower numbers. Then the first choices of all tokens, in their order, take places of their
 * experts, then the second ones, and so on, as long as an expert has any of its `capacity` left.
 *     routing         struct pp_route_scalars
 *     probabilities   in/out  [T, experts] float: logits, become probabilities
 *     choices         out     [T, chosen] int32: experts
 *     gates           out     [T, chosen] float: gate_scale * probabilities of the choices, see rules
 *     places          out     [T, chosen] int32: pp_expert_number() of the expert * capacity + i; -1: the choice has no
 *                             place, or is another worker's expert
 *     holds           out     [local * capacity] int32: t * chosen + choice that is in a place; -1: none
 *     counts          out     [experts] float: how many tokens have chosen each expert, with a place or without
 *     bias            in      [experts] float; optional
 */
PP_OPERANDS(route, probabilities, choices, gates, places, holds, counts, bias);

/* As route's. */
PP_DIMS(route_grad, rows, seq, experts, chosen, rules);

/* route_grad: the gradient at the logits of the gates, and of the loss that evens out the experts' load: aux * experts
 * * sum over experts of f P, with f the expert's part of all choices (from counts; it has no gradient) and P the mean
 * of its probabilities over the microbatch; with PP_ROUTE_SIGMOID each token's are divided by their sum over all
 * experts for that. This loss is scaled by the microbatch's part of the batch's tokens, pp_frame.loss_scale * T.
 *     routing         struct pp_route_scalars
 *     dlogits         out  [T, experts]
 *     dgates          in   [T, chosen] float
 *     probabilities, choices, gates, counts: in, as route has written them
 */
PP_OPERANDS(route_grad, dlogits, dgates, probabilities, choices, gates, counts);

/* places: in all experts of the worker; chosen: choices of a token */
PP_DIMS(places, places, width, tokens, chosen);

/* dispatch: to = the row of the token that each place holds; 0 where it holds none. The gradient of combine.
 *     to      out  [places, width]
 *     from    in   [tokens, width]
 *     holds   in   [places] int32, of route
 */
PP_OPERANDS(dispatch, to, from, holds);

/* mode: enum pp_gemm_mode, what becomes of `to` */
PP_DIMS(combine, tokens, width, places, chosen, mode);

/* combine: to = the sum of the rows of a token's places, in the order of its choices, in float32; then, if the mode
 * adds, plus what was there. The gradient of dispatch.
 *     to       out  [tokens, width]; in/out where the mode adds
 *     from     in   [places, width]
 *     places   in   [tokens, chosen] int32, of route
 */
PP_OPERANDS(combine, to, from, places);

/* weigh: u = u * gate of the choice that the place holds. Rows of places that hold nothing stay as they are.
 *     u       in/out  [places, width]
 *     gates   in      [tokens, chosen] float
 *     holds   in      [places] int32, of route; nowhere: place i holds choice i
 */
PP_OPERANDS(weigh, u, gates, holds);

/* weigh_grad: of a choice with a place dgates = sum of du u / gate over its row, 0 where the gate is 0; then du = du *
 * gate. Of a choice without a place dgates = 0.
 *     du       in/out  [places, width]
 *     dgates   out     [tokens, chosen] float
 *     u        in      [places, width], as weigh has left it
 *     gates    in      [tokens, chosen] float
 *     places   in      [tokens, chosen] int32, of route; nowhere: choice i has place i
 */
PP_OPERANDS(weigh_grad, du, dgates, u, gates, places);

#endif
