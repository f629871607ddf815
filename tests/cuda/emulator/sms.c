/* SPDX-License-Identifier: Apache-2.0
 *
 * Multiprocessors as places for blocks. A block takes the place that is free first; with PP_EMULATE_PARTITIONS=0 that
 * may be any of the device, as if green contexts were none.
 */

#include "emulator.h"

struct pp_emu_pool {
    struct pp_emu_pool *next; /* all there ever were: work may outlive its context */
    bool taken;
    int places, first; /* first: in turn, as blocks of one length leave them */
    int64_t free_ns[PP_EMU_SMS * PP_EMU_SM_BLOCKS];
};

static struct pp_emu_pool *pools, *whole[PP_EMU_DEVICES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static struct pp_emu_pool *take(int sms)
{
    struct pp_emu_pool *pool = pools;
    while (pool && pool->taken) pool = pool->next;
    if (!pool) {
        pool = pp_emu_new(sizeof(*pool));
        pool->next = pools;
        pools = pool;
    }
    pool->taken = true;
    pool->first = 0;
    pool->places = sms * PP_EMU_SM_BLOCKS;
    for (int i = 0; i < pool->places; i++) pool->free_ns[i] = 0;
    return pool;
}

struct pp_emu_pool *pp_emu_pool_take(int sms)
{
    pp_emu_lock(&mutex);
    struct pp_emu_pool *pool = take(sms);
    pp_emu_unlock(&mutex);
    return pool;
}

void pp_emu_pool_return(struct pp_emu_pool *pool)
{
    pp_emu_lock(&mutex);
    pool->taken = false;
    pp_emu_unlock(&mutex);
}

int64_t pp_emu_occupy(cudaStream_t stream, int64_t start, uint64_t blocks, int64_t ns)
{
    int64_t end = start;
    pp_emu_lock(&mutex);
    struct pp_emu_pool **all = &whole[stream->device];
    if (!*all) *all = take(PP_EMU_SMS);
    struct pp_emu_pool *pool = stream->pool && pp_emu_settings()->partitions ? stream->pool : *all;
    for (; blocks; blocks--) {
        int64_t *place = &pool->free_ns[pool->first];
        pool->first = (pool->first + 1) % pool->places;
        *place = (*place > start ? *place : start) + ns;
        if (*place > end) end = *place;
    }
    pp_emu_unlock(&mutex);
    return end;
}
