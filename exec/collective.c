/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/collective.h"

#include <stdlib.h>
#include <string.h>

struct pp_group pp_group_all(const struct pp_world *world) { return (struct pp_group){0, 1, world->workers}; }

/* Member s = me - distance knows its own and the next blocks behind it, at its positions 0, 1, ...: they are this
 * member's blocks at positions distance, distance + 1, ... */
static pp_status next_round(struct pp_world *world, struct pp_gather *gather)
{
    int n = gather->group.n, distance = gather->known;
    gather->done = distance >= n;
    if (gather->done) return PP_OK;
    int member = pp_group_member(&gather->group, gather->me), count = distance < n - distance ? distance : n - distance;
    int to = pp_group_worker(&gather->group, (member + distance) % n);
    int from = pp_group_worker(&gather->group, (member - distance + n) % n);
    PP_TRY(pp_recv(world, from, gather->me, gather->kind, gather->blocks + distance * gather->bytes,
                   count * gather->bytes, &gather->recv));
    return pp_send(world, gather->me, to, gather->kind, gather->blocks, count * gather->bytes, &gather->send);
}

pp_status pp_gather_start(struct pp_world *world, struct pp_gather *gather)
{
    gather->known = 1;
    gather->open = true;
    PP_TRY(next_round(world, gather));
    return pp_gather_poll(world, gather);
}

pp_status pp_gather_poll(struct pp_world *world, struct pp_gather *gather)
{
    while (gather->open && !gather->done) {
        PP_TRY(pp_test(world, &gather->recv));
        PP_TRY(pp_test(world, &gather->send));
        if (!gather->recv.done || !gather->send.done) return PP_OK;
        gather->known *= 2;
        PP_TRY(next_round(world, gather));
    }
    return PP_OK;
}

void *pp_gather_block(const struct pp_gather *gather, int member)
{
    int n = gather->group.n, me = pp_group_member(&gather->group, gather->me);
    return gather->blocks + (me - member + n) % n * gather->bytes;
}

static pp_status look_at_gather(struct pp_world *world, void *at, bool *done)
{
    struct pp_gather *gather = at;
    PP_TRY(pp_gather_poll(world, gather));
    *done = gather->done;
    return PP_OK;
}

static pp_status finish_gather(struct pp_world *world, struct pp_gather *gather)
{
    PP_TRY(pp_gather_start(world, gather));
    return pp_world_await(world, gather->me, look_at_gather, gather);
}

pp_status pp_allgather(struct pp_world *world, int me, const void *mine, int64_t bytes, void *all)
{
    struct pp_gather gather = {.group = pp_group_all(world), .me = me, .kind = PP_MESSAGE_CONTROL, .bytes = bytes};
    PP_TRY(pp_world_scratch(world, me, world->workers * bytes, &gather.blocks));
    memcpy(gather.blocks, mine, (size_t)bytes);
    PP_TRY(finish_gather(world, &gather));
    for (int i = 0; i < world->workers; i++)
        memcpy((unsigned char *)all + i * bytes, pp_gather_block(&gather, i), (size_t)bytes);
    return PP_OK;
}

pp_status pp_barrier(struct pp_world *world, int me)
{
    unsigned char *all, mine = 0;
    PP_TRY(PP_NEW(&all, world->workers));
    pp_status status = pp_allgather(world, me, &mine, 1, all);
    free(all);
    return status;
}

/* A binomial tree over the workers counted from the root: number r gets it from r without its highest bit. */
pp_status pp_broadcast(struct pp_world *world, int me, int root, void *data, int64_t bytes)
{
    int n = world->workers, number = (me - root + n) % n, high = 1;
    while (high * 2 <= number) high *= 2;
    if (number) PP_TRY(pp_recv_now(world, (number - high + root) % n, me, PP_MESSAGE_CONTROL, data, bytes));
    for (int step = number ? high * 2 : 1; number + step < n; step *= 2)
        PP_TRY(pp_send_now(world, me, (number + step + root) % n, PP_MESSAGE_CONTROL, data, bytes));
    return PP_OK;
}
