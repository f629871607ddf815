/* SPDX-License-Identifier: Apache-2.0
 *
 * Interleaved 1F1B (Narayanan et al. 2021, Megatron-LM; order of torch.distributed.pipelining ScheduleInterleaved1F1B):
 * V stages per rank, stage v*P + r on rank r. Microbatches are divided into max(1, M div P) rounds of K microbatches
 * each. In a round a rank runs the K forwards of its first stage, then those of its second, and so on; backwards begin
 * with its last stage. Without backwards (evaluation) M may be any number; some rounds then have a microbatch more than
 * others.
 *
 * interleaved:N has rounds of N microbatches, and a last one with those that are left (Megatron-LM's
 * --microbatch-group-size-per-virtual-pipeline-stage; Llama 3, Grattafiori et al. 2024, section 3.3.2). With N above P
 * a microbatch arrives at a rank before its turn, so hops are hidden, and the rank keeps activations of (V-1)(N-P) more
 * microbatches of a stage.
 *
 *   P = 2, V = 2, M = 4 (stage, kind, microbatch):
 *   rank 0  0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3
 *   rank 1  1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3
 */
#include "schedules/interleaved.h"

static int rounds(int ranks, int microbatches) { return microbatches < ranks ? 1 : microbatches / ranks; }

static bool divides(int ranks, int microbatches) { return microbatches % rounds(ranks, microbatches) == 0; }

/* The conditions of Megatron-LM: in a round of fewer microbatches than ranks, ranks would have to wait. */
static pp_status check_turns(const struct pp_schedule_shape *shape)
{
    const int p = shape->ranks, n = shape->number, m = shape->microbatches, left = m % n;
    if (m < p)
        return pp_fail(PP_USAGE,
                       "interleaved schedules with a number need as many microbatches as ranks, %d: there %s %d", p,
                       m == 1 ? "is" : "are", m);
    if (n < p || n > m)
        return pp_fail(PP_USAGE,
                       "interleaved schedules on %d ranks take from %d to the %d microbatches in turn, not %d", p, p, m,
                       n);
    if (left == 0 || left >= p) return PP_OK;
    return pp_fail(PP_USAGE,
                   "interleaved schedules on %d ranks: of %d microbatches, %d in turn, %d %s left for the last "
                   "turn, fewer than ranks",
                   p, m, n, left, left == 1 ? "is" : "are");
}

pp_status pp_interleaved_check(const struct pp_schedule_shape *shape)
{
    int p = shape->ranks, m = shape->microbatches;
    if (!shape->training) return PP_OK;
    if (shape->number) return check_turns(shape);
    if (divides(p, m)) return PP_OK;
    int below = m - 1, above = m + 1;
    while (!divides(p, below)) below--;
    while (!divides(p, above)) above++;
    return pp_fail(
        PP_USAGE,
        "interleaved schedules on %d ranks take their microbatches in %d equal turns (%d / %d, rounded down), "
        "and %d cannot be divided so; %d and %d microbatches work",
        p, rounds(p, m), m, p, m, below, above);
}

static int first_of_round(const struct pp_schedule_shape *shape, int round)
{
    const int64_t m = shape->microbatches, first = (int64_t)round * shape->number;
    if (shape->number) return (int)(first < m ? first : m);
    return (int)(round * m / rounds(shape->ranks, shape->microbatches));
}

static int round_of(const struct pp_schedule_shape *shape, int microbatch)
{
    if (shape->number) return microbatch / shape->number;
    int64_t before = (microbatch + 1) * (int64_t)rounds(shape->ranks, shape->microbatches) - 1;
    return (int)(before / shape->microbatches);
}

/* Appends number k of the rank's operations of this kind (F, I, W or B). */
static pp_status add(const struct pp_schedule_shape *shape, int rank, enum pp_kind kind, int k, struct pp_order *out)
{
    int round = round_of(shape, k / shape->virtual_stages), first = first_of_round(shape, round),
        per_round = first_of_round(shape, round + 1) - first;
    int in_round = k - first * shape->virtual_stages, v = in_round / per_round;
    if (kind != PP_F) v = shape->virtual_stages - 1 - v;
    return pp_order_add(out, kind, v * shape->ranks + rank, first + in_round % per_round);
}

pp_status pp_interleaved_order(const struct pp_schedule_shape *shape, int rank, bool split, struct pp_order *out)
{
    int p = shape->ranks, v = shape->virtual_stages, m = shape->microbatches;
    int most = shape->number ? first_of_round(shape, 1) : (m - 1) / rounds(p, m) + 1; /* microbatches of a round */
    int total = m * v, ahead = (v - 1) * most + (split ? 1 : 2) * (p - 1 - rank), weights = 0;
    if (ahead > total) ahead = total;
    for (int f = 0; f < ahead; f++) PP_TRY(add(shape, rank, PP_F, f, out));
    for (int b = 0; b < total; b++) {
        if (ahead + b < total) PP_TRY(add(shape, rank, PP_F, ahead + b, out));
        PP_TRY(add(shape, rank, split ? PP_I : PP_B, b, out));
        if (split && b >= rank) PP_TRY(add(shape, rank, PP_W, weights++, out));
    }
    while (split && weights < total) PP_TRY(add(shape, rank, PP_W, weights++, out));
    return PP_OK;
}

static pp_status order(const struct pp_schedule_shape *shape, int rank, struct pp_order *out)
{
    return pp_interleaved_order(shape, rank, false, out);
}

const struct pp_schedule pp_schedule_interleaved = {
    .name = "interleaved",
    .torch_name = "Interleaved1F1B",
    .summary = "1F1B over V stages per rank; bubble 1/V of 1F1B's, more transfers; interleaved:N takes N in turn (P)",
    .number = PP_NUMBER_IN_TURN,
    .virtual_stages = PP_ANY_STAGES,
    .check = pp_interleaved_check,
    .order = order};
