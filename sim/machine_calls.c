/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/machine_calls.h"

#include <math.h>
#include <string.h>

#include "core/base/hash.h"

static struct pp_rates rates_of(const struct pp_machine *m, int sharers)
{
    struct pp_rates rates = {.gpu = m->cores == 0,
                             .bytes_per_ns = m->bytes_per_ns,
                             .loaded_bytes_per_ns = m->loaded_bytes_per_ns / sharers,
                             .shared_bytes_per_ns = m->shared_bytes_per_ns / sharers};
    for (int i = 0; i < 2 && m->library_attention; i++)
        rates.attention_flops_per_ns[i] = m->attention[i] * m->peak_flops_per_ns[PP_BF16] / sharers;
    for (int i = 0; i < PP_PRECISIONS; i++) {
        rates.flops_per_ns[i] = m->flops_per_ns[i] / sharers;
        rates.peak_flops_per_ns[i] = m->peak_flops_per_ns[i] / sharers;
        rates.tiles[i] = m->tiles[i];
        const int parts = m->tiles[i].multiprocessors / sharers;
        if (m->tiles[i].multiprocessors > 0) rates.tiles[i].multiprocessors = parts > 0 ? parts : 1;
    }
    return rates;
}

/* How products of the work are computed in tiles; NULL: it is no product, or tiles are not known. A product has FLOPs
 * of one precision. */
static const struct pp_tiles *tiles_of(const struct pp_rates *rates, const struct pp_work *work, int *precision)
{
    for (int i = 0; i < PP_PRECISIONS && work->product.times > 0; i++)
        if (work->flops[i] > 0 && rates->tiles[i].multiprocessors > 0) return *precision = i, &rates->tiles[i];
    return NULL;
}

static double product_ns(const struct pp_rates *rates, const struct pp_work *work, double bytes_per_ns)
{
    int precision;
    const struct pp_tiles *tiles = tiles_of(rates, work, &precision);
    return tiles ? pp_product_ns(tiles, &work->product, rates->peak_flops_per_ns[precision], bytes_per_ns) : 0;
}

/* Shared memory moves so many bytes in a clock of a multiprocessor, so its bandwidth says what a clock is. */
enum { BYTES_OF_CLOCK = 128 };

static double work_ns(const struct pp_work *work, double product_ns, const struct pp_rates *rates, double bytes_per_ns)
{
    int precision;
    double ns = 0;
    const double memory_ns = work->bytes / bytes_per_ns, shared = rates->shared_bytes_per_ns;
    const struct pp_tiles *tiles = tiles_of(rates, work, &precision);
    if (tiles) return tiles->start_ns + fmax(memory_ns / tiles->memory, product_ns);
    for (int i = 0; i < 2; i++)
        if (work->attention[i] > 0 && rates->attention_flops_per_ns[i] > 0)
            return fmax(work->attention[i] / rates->attention_flops_per_ns[i], memory_ns);
    for (int i = 0; i < PP_PRECISIONS; i++)
        if (work->flops[i] > 0) ns = fmax(ns, work->flops[i] / rates->flops_per_ns[i]);
    if (shared > 0) ns = fmax(ns, work->shared_bytes / shared) + work->clocks * BYTES_OF_CLOCK / shared;
    return work->bytes_before / bytes_per_ns + fmax(ns, memory_ns);
}

static struct pp_call_key key_of(const struct pp_call *call)
{
    struct pp_call_key key = {.kernel = call->kernel, .precision = call->precision, .adds = call->adds};
    memcpy(key.n, call->n, sizeof key.n);
    for (int i = 0; i < PP_CALL_REFS; i++) key.operands |= (uint32_t)(call->ref[i].region != PP_MEM_NONE) << i;
    return key;
}

static bool same(const struct pp_call_key *a, const struct pp_call_key *b)
{
    return a->kernel == b->kernel && a->precision == b->precision && a->adds == b->adds && a->operands == b->operands &&
           memcmp(a->n, b->n, sizeof a->n) == 0;
}

static int place_of(const struct pp_call_key *key)
{
    uint64_t hash = (uint64_t)key->kernel << 32 | key->operands;
    for (int i = 0; i < PP_CALL_DIMS; i += 2)
        hash = pp_hash_pair(hash, key->n[i], i + 1 < PP_CALL_DIMS ? key->n[i + 1] : 0);
    return (int)(hash % PP_TIMED_CALLS);
}

void pp_machine_calls_begin(struct pp_machine_calls *calls, const struct pp_machine *machine,
                            const struct pp_model_ops *ops, int sharers)
{
    *calls = (struct pp_machine_calls){.machine = machine, .ops = ops, .rates = rates_of(machine, sharers)};
}

static double roofline_ns(const struct pp_work *work, const struct pp_rates *rates, double bytes_per_ns)
{
    return work_ns(work, product_ns(rates, work, bytes_per_ns), rates, bytes_per_ns);
}

struct pp_roofline pp_machine_roofline(struct pp_machine_calls *calls, const struct pp_call *call)
{
    const struct pp_rates *rates = &calls->rates;
    const struct pp_call_key key = key_of(call);
    struct pp_timed_call *at = &calls->calls[place_of(&key)];
    if (at->known && same(&at->key, &key)) return at->times;
    const struct pp_work work = calls->ops->call_work(call, rates->gpu);
    *at = (struct pp_timed_call){.key = key,
                                 .known = true,
                                 .times = {.ns = roofline_ns(&work, rates, rates->bytes_per_ns),
                                           .loaded_ns = roofline_ns(&work, rates, rates->loaded_bytes_per_ns)}};
    return at->times;
}

pp_status pp_machine_call_ns(void *machine_calls, const struct pp_call *call, double *out)
{
    struct pp_machine_calls *calls = machine_calls;
    *out = pp_machine_roofline(calls, call).ns;
    if (calls->ops->call_join(call).op != PP_JOIN_AWAIT) *out += calls->machine->call_overhead_ns;
    return PP_OK;
}

double pp_machine_work_ns(const struct pp_machine *m, const struct pp_work *work)
{
    const struct pp_rates rates = rates_of(m, 1);
    return roofline_ns(work, &rates, rates.bytes_per_ns);
}
