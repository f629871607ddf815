/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "schedules/building.h"

/* Doubles the capacity. The oldest element is moved to index 0. */
static pp_status grow_queue(struct pp_slot_queue *queue)
{
    const int32_t capacity = queue->capacity ? 2 * queue->capacity : 4;
    int32_t *straight;
    PP_TRY(PP_NEW(&straight, capacity));
    for (int32_t i = 0; i < queue->n; i++) straight[i] = queue->values[(queue->head + i) & (queue->capacity - 1)];
    free(queue->values);
    *queue = (struct pp_slot_queue){.values = straight, .n = queue->n, .capacity = capacity};
    return PP_OK;
}

pp_status pp_queue_add(struct pp_slot_queue *queue, int32_t value)
{
    if (queue->n == queue->capacity) PP_TRY(grow_queue(queue));
    queue->values[(queue->head + queue->n++) & (queue->capacity - 1)] = value;
    return PP_OK;
}

int32_t pp_queue_oldest(struct pp_slot_queue *queue)
{
    int32_t value = queue->values[queue->head];
    queue->head = (queue->head + 1) & (queue->capacity - 1);
    queue->n--;
    return value;
}

static pp_status make(struct pp_slots *slots)
{
    PP_TRY(PP_GROW(&slots->users, slots->pool.made + 1, &slots->users_room));
    if (slots->pool.made == slots->free.capacity) PP_TRY(grow_queue(&slots->free));
    slots->users[slots->pool.made++] = (struct pp_slot_users){-1, -1};
    return PP_OK;
}

bool pp_slots_available(const struct pp_slots *slots)
{
    return slots->free.n > 0 || slots->limit == 0 || slots->pool.made < slots->limit;
}

static int32_t reuse(struct pp_slots *slots)
{
    struct pp_slot_queue *queue = &slots->free;
    if (slots->oldest_first) return pp_queue_oldest(queue);
    queue->n--;
    return queue->values[(queue->head + queue->n) & (queue->capacity - 1)];
}

pp_status pp_slots_take(struct pp_slots *slots, int32_t *out)
{
    if (slots->pool.made >= slots->eager && slots->free.n > 0) {
        *out = reuse(slots);
        return PP_OK;
    }
    if (slots->limit > 0 && slots->pool.made == slots->limit) return pp_fail(PP_INTERNAL, "no slot is free");
    PP_TRY(make(slots));
    *out = slots->pool.made - 1;
    return PP_OK;
}

void pp_slots_free(struct pp_slots *slots, int32_t slot)
{
    struct pp_slot_queue *queue = &slots->free; /* make() gives it room for all slots */
    queue->values[(queue->head + queue->n++) & (queue->capacity - 1)] = slot;
}

void pp_slots_release(struct pp_slots *slots)
{
    free(slots->free.values);
    free(slots->users);
}
