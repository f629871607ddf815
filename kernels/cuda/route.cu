/* SPDX-License-Identifier: Apache-2.0
 *
 * The router: which experts each token chooses, which of the choices find places, and the gradient at the router's
 * logits. The kernel `choose` has a warp for each token, which makes its probabilities and choices. The kernel
 * `give_places` then has a thread block for each expert, which goes through the choices of all tokens in the order in
 * which they take places. It finds them in scratch, in that order.
 *
 * When ppprof times route_grad alone, its operands hold arbitrary numbers. A number that names no expert is then
 * treated as no choice.
 */
#include <algorithm>
#include <cfloat>

#include "kernels/cuda/gpu.cuh"
#include "kernels/expert_order.h"

enum {
    ROUTE_WARPS = 8,
    GRAD_BLOCKS = 4, /* thread blocks of route_grad that a multiprocessor can run at a time, at least */
    SCAN_THREADS = 1024,
    ROWS_BYTES = 32 << 10 /* shared memory for the scores of a thread block's tokens, at most */
};

/* In the place of a score, all of which are -FLT_MAX at least: the expert is chosen already. */
#define CHOSEN (-INFINITY)

typedef uint16_t expert_number; /* the type of choices in scratch */
static_assert(PP_CHOICES_MAX * sizeof(expert_number) <= PP_CUDA_SCRATCH_BYTES, "all choices of a call");

struct routing {
    float *probabilities; /* [T, experts], the logits before */
    int32_t *choices;     /* [T, chosen] */
    float *gates;         /* [T, chosen] */
    expert_number *order; /* [chosen, T]: the choices again */
    const float *bias;    /* [experts]; NULL: there is none */
    int experts, chosen, tokens;
    int groups, picked; /* of experts, and how many a token chooses from; groups 0: it chooses from all experts */
    int rules;          /* enum pp_route_rules */
    float scale;        /* times the gates */
};

/* Writes probabilities, [experts], to memory and to `row`. */
static __device__ void softmax(float *probabilities, float *row, int experts, int lane)
{
    float most = -INFINITY, sum = 0;
    for (int e = lane; e < experts; e += PP_WARP) {
        row[e] = probabilities[e];
        most = fmaxf(most, row[e]);
    }
    most = pp_warp_max(most);
    for (int e = lane; e < experts; e += PP_WARP) {
        row[e] = expf(row[e] - most);
        sum += row[e];
    }
    const float scale = 1 / pp_warp_sum(sum);
    for (int e = lane; e < experts; e += PP_WARP) probabilities[e] = row[e] = row[e] * scale;
}

/* The same, but each probability is the logistic function of its own logit. */
static __device__ void sigmoid(float *probabilities, float *row, int experts, int lane)
{
    for (int e = lane; e < experts; e += PP_WARP) probabilities[e] = row[e] = 1 / (1 + expf(-probabilities[e]));
}

/* Makes scores of probabilities, in place; what is no number is the least number. */
static __device__ inline void make_scores(const routing &r, float *row, int lane)
{
    for (int e = lane; e < r.experts; e += PP_WARP) row[e] = fmaxf(r.bias ? row[e] + r.bias[e] : row[e], -FLT_MAX);
}

/* A score and its number in the row as one number: the greater, the higher the score; of equal scores that of the lower
 * number is greater. Bits of floats are in the order of the floats, but for the sign. */
static __device__ inline uint64_t candidate(float score, int number)
{
    const unsigned bits = __float_as_uint(score), sign = 1u << 31;
    return (uint64_t)(bits & sign ? ~bits : bits | sign) << 32 | (uint32_t)~number;
}

/* The number of the highest score of those that are not chosen yet, in all lanes. */
static __device__ int highest(const float *row, int n, int lane)
{
    uint64_t best = 0;
    for (int e = lane; e < n; e += PP_WARP) {
        const uint64_t next = row[e] == CHOSEN ? 0 : candidate(row[e], e);
        best = next > best ? next : best;
    }
#pragma unroll
    for (int step = PP_WARP / 2; step; step /= 2) {
        const uint64_t other = pp_of_lane(best, step);
        best = other > best ? other : best;
    }
    return (int)~(uint32_t)best;
}

/* Of a group of n experts: the highest score, or the sum of the two highest. */
static __device__ inline float group_score(const routing &r, const float *scores, int n)
{
    float best = -INFINITY, second = -INFINITY;
    for (int e = 0; e < n; e++) {
        const float score = scores[e];
        second = fmaxf(second, fminf(best, score));
        best = fmaxf(best, score);
    }
    return fmaxf(r.rules & PP_ROUTE_GROUP_BY_BEST ? best : best + second, -FLT_MAX);
}

/* Takes the scores of experts away that are not in the best groups. of_group: room for a score of each group. */
static __device__ void leave_groups(const routing &r, float *row, float *of_group, int lane)
{
    const int size = r.experts / r.groups;
    __syncwarp();
    for (int g = lane; g < r.groups; g += PP_WARP) of_group[g] = group_score(r, row + g * size, size);
    for (int i = 0; i < r.picked; i++) {
        __syncwarp(); /* what other lanes have written is there */
        const int group = highest(of_group, r.groups, lane);
        __syncwarp(); /* all have read the scores */
        if (lane == 0) of_group[group] = CHOSEN;
    }
    __syncwarp();
    for (int e = lane; e < r.experts; e += PP_WARP)
        if (of_group[e / size] != CHOSEN) row[e] = CHOSEN;
}

/* Shared memory: [warps, experts + groups]. */
static __global__ void __launch_bounds__(ROUTE_WARPS *PP_WARP) choose(routing r)
{
    PP_SHARED(float, rows);
    const int lane = (int)threadIdx.x % PP_WARP, warp = (int)threadIdx.x / PP_WARP;
    const int token = (int)(blockIdx.x * (blockDim.x / PP_WARP)) + warp;
    if (token >= r.tokens) return;
    float *const row = rows + warp * (r.experts + r.groups), *const gates = r.gates + (int64_t)token * r.chosen;
    if (r.rules & PP_ROUTE_SIGMOID)
        sigmoid(r.probabilities + (int64_t)token * r.experts, row, r.experts, lane);
    else
        softmax(r.probabilities + (int64_t)token * r.experts, row, r.experts, lane);
    make_scores(r, row, lane);
    if (r.groups) leave_groups(r, row, row + r.experts, lane);
    float sum = r.rules & PP_ROUTE_SIGMOID ? PP_ROUTE_TINY : 0;
    for (int i = 0; i < r.chosen; i++) {
        __syncwarp(); /* what other lanes have written is there */
        const int expert = highest(row, r.experts, lane);
        const float probability = r.probabilities[(int64_t)token * r.experts + expert];
        __syncwarp(); /* all have read the row: shuffles put no order on memory */
        sum += probability;
        if (lane == 0) {
            row[expert] = CHOSEN;
            gates[i] = probability;
            r.choices[(int64_t)token * r.chosen + i] = expert;
            r.order[(int64_t)i * r.tokens + token] = (expert_number)expert;
        }
    }
    __syncwarp();
    if (r.rules & PP_ROUTE_OF_ALL) sum = 1;
    for (int i = lane; i < r.chosen; i += PP_WARP) gates[i] = r.scale * (gates[i] / sum);
}

struct placing {
    const expert_number *order;            /* [chosen, T] */
    int32_t *places;                       /* [T, chosen] */
    int32_t *holds;                        /* [local, capacity] */
    float *counts;                         /* [experts] */
    int choices, chosen, tokens, capacity; /* choices: of all tokens */
    int first;                             /* the worker has n.local experts, from this one on */
    pp_route_dims n;
};

/* Compares four choices, from number `at` on, with the expert: bit k is set where choice at + k is this expert's. */
static __device__ inline unsigned matches(const placing &r, int at, int expert)
{
    unsigned bits = 0;
    if (at >= r.choices) return 0;
    const pp_pack<expert_number> pack = *reinterpret_cast<const pp_pack<expert_number> *>(r.order + at);
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) bits |= (unsigned)(at + k < r.choices && pack.v[k] == expert) << k;
    return bits;
}

/* Gives place number `taken` of an expert to choice `at`, if the worker has this expert (number >= 0) and the expert so
 * many places. Choices count in the order in which they take places. */
static __device__ inline void take_place(const placing &r, int at, int number, int taken)
{
    const int choice = at % r.tokens * r.chosen + at / r.tokens;
    const bool finds = number >= 0 && taken < r.capacity;
    const int place = finds ? number * r.capacity + taken : -1;
    r.places[choice] = place;
    if (finds) r.holds[place] = choice;
}

/* bits: which of the lane's four choices are the expert's. Returns how many such choices the lanes before this one
 * have; *all: how many all lanes of the warp have. */
static __device__ inline int count_before(unsigned bits, int lane, int *all)
{
    int before = 0;
    *all = 0;
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) {
        const unsigned lanes = __ballot_sync(0xffffffffu, (int)(bits >> k & 1));
        before += __popc(lanes & ((1u << lane) - 1));
        *all += __popc(lanes);
    }
    return before;
}

using turns_by_warp = int[2][PP_BLOCK_WARPS];

/* A thread block works on one expert. In each round it looks at four choices a thread. As that is fewer than 65536
 * choices, two counts are summed at once, in the halves of one number. */
static __global__ void __launch_bounds__(SCAN_THREADS) give_places(placing r)
{
    PP_SHARED_ONE(turns_by_warp, found);
    const int expert = (int)blockIdx.x, here = expert - r.first,
              number = here >= 0 && here < r.n.local ? pp_expert_number(&r.n, here) : -1,
              lane = (int)threadIdx.x % PP_WARP, warp = (int)threadIdx.x / PP_WARP, warps = (int)blockDim.x / PP_WARP,
              step = PP_QUAD * (int)blockDim.x;
    int taken = 0;
    for (int begin = 0, turn = 0; begin < r.choices; begin += step, turn ^= 1) {
        const int at = begin + PP_QUAD * (int)threadIdx.x;
        const unsigned bits = matches(r, at, expert);
        int of_warp, next = taken + count_before(bits, lane, &of_warp);
        if (lane == 0) found[turn][warp] = of_warp;
        __syncthreads(); /* what the next round writes nobody reads any more */
        const int theirs = lane < warps ? found[turn][lane] : 0;
        const int sums = pp_warp_sum(theirs | (lane < warp ? theirs << 16 : 0));
        next += sums >> 16;
        taken += sums & 0xffff;
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++)
            if (bits >> k & 1) take_place(r, at + k, number, next++);
    }
    if (threadIdx.x == 0) r.counts[expert] = (float)taken; /* below 2^24: exact */
    if (number < 0) return;
    int32_t *const holds = r.holds + (int64_t)number * r.capacity;
    for (int64_t i = (int64_t)taken + threadIdx.x; i < r.capacity; i += blockDim.x) holds[i] = -1;
}

cudaError_t pp_cuda_route(const struct pp_cuda_call *c)
{
    const struct pp_route_memory *at = &c->at.route;
    const struct pp_route_dims *n = &c->call->route;
    const int64_t tokens = (int64_t)n->rows * n->seq, choices = tokens * n->chosen;
    routing r;
    r.probabilities = static_cast<float *>(at->probabilities);
    r.choices = static_cast<int32_t *>(at->choices);
    r.gates = static_cast<float *>(at->gates);
    r.order = static_cast<expert_number *>(c->scratch);
    r.bias = static_cast<const float *>(at->bias);
    r.experts = n->experts;
    r.chosen = n->chosen;
    r.tokens = (int)tokens;
    r.groups = c->call->routing.groups;
    r.picked = c->call->routing.picked;
    r.rules = n->rules;
    r.scale = c->call->routing.gate_scale;
    const int row_bytes = (r.experts + r.groups) * (int)sizeof(float),
              warps = std::min((int)ROUTE_WARPS, ROWS_BYTES / row_bytes);
    PP_LAUNCH(choose, pp_div_up(tokens, warps), warps * PP_WARP, warps * row_bytes, c->stream, r);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;
    placing p;
    p.order = r.order;
    p.places = static_cast<int32_t *>(at->places);
    p.holds = static_cast<int32_t *>(at->holds);
    p.counts = static_cast<float *>(at->counts);
    p.choices = (int)choices;
    p.chosen = n->chosen;
    p.tokens = (int)tokens;
    p.capacity = n->capacity;
    p.n = *n;
    p.first = c->frame->tensor_rank * n->local;
    PP_LAUNCH(give_places, n->experts, pp_block_threads(pp_div_up(choices, PP_QUAD), SCAN_THREADS), 0, c->stream, p);
    return cudaGetLastError();
}

template <typename T> struct route_gradient {
    T *dlogits;                                  /* [T, experts] */
    const float *dgates, *probabilities, *gates; /* [T, chosen], [T, experts], [T, chosen] */
    const int32_t *choices;                      /* [T, chosen] */
    const float *counts;                         /* [experts] */
    int experts, chosen, tokens;
    int rules;   /* enum pp_route_rules */
    float scale; /* times the gates */
    float even;  /* times an expert's count: the gradient at its probabilities of the loss that makes routers even */
};

/* The expert of a choice; negative if its number names no expert. */
template <typename T> static __device__ inline int chosen_expert(const route_gradient<T> &r, int64_t choice)
{
    const int expert = r.choices[choice];
    return expert < r.experts ? expert : -1;
}

/* The loss that makes routers even has, for a token, the gradient `even` at the normalised probabilities. With
 * PP_ROUTE_SIGMOID these are p / sum, where sum is the sum of p over all experts; so the gradient at p is
 * (even - mean) / sum, where mean is the sum of even p / sum. Otherwise p is normalised: mean is 0, and sum is 1. */
struct evening {
    float mean, sum;
};
template <typename T> static __device__ inline evening evening_of(const route_gradient<T> &r, const float *p, int lane)
{
    pp_pair sums = {0, 0}; /* of even p, of p */
    if (!(r.rules & PP_ROUTE_SIGMOID)) return {0, 1};
    for (int e = lane; e < r.experts; e += PP_WARP) sums += {r.even * r.counts[e] * p[e], p[e]};
    sums = pp_warp_sum(sums);
    return {sums.a / (sums.b + PP_ROUTE_TINY), sums.b + PP_ROUTE_TINY};
}

/* The gradient at a logit, from dp, the gradient at its probability p: of a softmax p (dp - sum of dp p), of logistic
 * functions p (1 - p) dp. sum: the sum of dp p over all experts. */
static __device__ inline float at_logit(int rules, float p, float dp, float sum)
{
    return rules & PP_ROUTE_SIGMOID ? p * (1 - p) * dp : p * (dp - sum);
}

/* A warp works on one token. With gates g = scale p / s of the chosen ones, s their sum, the gradient of the gates at p
 * is (scale dg - sum of dg g) / s; of all: g = scale p. */
template <typename T>
static __global__ void __launch_bounds__(ROUTE_WARPS *PP_WARP, GRAD_BLOCKS) route_grad(route_gradient<T> r)
{
    const int lane = (int)threadIdx.x % PP_WARP;
    const int64_t token = (int64_t)blockIdx.x * ROUTE_WARPS + threadIdx.x / PP_WARP;
    if (token >= r.tokens) return;
    const float *const p = r.probabilities + token * r.experts;
    T *const dlogits = r.dlogits + token * r.experts;
    const int64_t first = token * r.chosen, end = first + r.chosen;
    pp_pair of_choices = {0, 0}; /* sum of dg g, of p */
    for (int64_t i = first + lane; i < end; i += PP_WARP) {
        const int expert = chosen_expert(r, i);
        of_choices += {r.dgates[i] * r.gates[i], expert >= 0 ? p[expert] : 0};
    }
    of_choices = pp_warp_sum(of_choices);
    if (r.rules & PP_ROUTE_SIGMOID) of_choices.b += PP_ROUTE_TINY;
    if (r.rules & PP_ROUTE_OF_ALL) of_choices = {0, 1};
    const evening even = evening_of(r, p, lane);
    float sum = 0;
    for (int e = lane; e < r.experts; e += PP_WARP) sum += r.even * r.counts[e] * p[e];
    for (int64_t i = first + lane; i < end; i += PP_WARP) {
        const int expert = chosen_expert(r, i);
        if (expert >= 0) sum += (r.scale * r.dgates[i] - of_choices.a) / of_choices.b * p[expert];
    }
    sum = pp_warp_sum(sum);
    for (int e = lane; e < r.experts; e += PP_WARP) {
        const float dp = (r.even * r.counts[e] - even.mean) / even.sum;
        dlogits[e] = pp_from_float<T>(at_logit(r.rules, p[e], dp, sum));
    }
    __syncwarp(); /* those of the chosen ones are written again */
    for (int64_t i = first + lane; i < end; i += PP_WARP) {
        const int expert = chosen_expert(r, i);
        if (expert < 0) continue;
        const float dp =
            (r.even * r.counts[expert] - even.mean) / even.sum + (r.scale * r.dgates[i] - of_choices.a) / of_choices.b;
        dlogits[expert] = pp_from_float<T>(at_logit(r.rules, p[expert], dp, sum));
    }
}

template <typename T> static cudaError_t run_route_grad(const struct pp_cuda_call *c)
{
    const struct pp_route_grad_memory *at = &c->at.route_grad;
    const struct pp_route_grad_dims *n = &c->call->route_grad;
    route_gradient<T> r;
    r.dlogits = static_cast<T *>(at->dlogits);
    r.dgates = static_cast<const float *>(at->dgates);
    r.probabilities = static_cast<const float *>(at->probabilities);
    r.choices = static_cast<const int32_t *>(at->choices);
    r.gates = static_cast<const float *>(at->gates);
    r.counts = static_cast<const float *>(at->counts);
    r.experts = n->experts;
    r.chosen = n->chosen;
    r.tokens = n->rows * n->seq;
    r.rules = n->rules;
    r.scale = c->call->routing.gate_scale;
    r.even = c->call->routing.aux * c->frame->loss_scale * (float)r.experts / ((float)r.tokens * (float)r.chosen);
    PP_LAUNCH(route_grad<T>, pp_div_up(r.tokens, ROUTE_WARPS), ROUTE_WARPS * PP_WARP, 0, c->stream, r);
    return cudaGetLastError();
}

cudaError_t pp_cuda_route_grad(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_route_grad, c); }

cudaError_t pp_cuda_prepare_route(void)
{
    const void *const kernels[] = {reinterpret_cast<const void *>(choose), reinterpret_cast<const void *>(give_places),
                                   reinterpret_cast<const void *>(route_grad<float>),
                                   reinterpret_cast<const void *>(route_grad<__nv_bfloat16>)};
    return pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
}
