/* SPDX-License-Identifier: Apache-2.0
 *
 * Who sends what to whom. Collectives go through rank 0.
 */
#include <stdlib.h>
#include <string.h>

#include "core/calls/bf16.h"
#include "nccl_exchange.h"

const char *const pp_nccl_operations[PP_NCCL_OPERATIONS] = {"ncclSend", "ncclRecv", "ncclAllReduce",
                                                            "ncclReduceScatter", "ncclAllGather"};

/* What two ranks say before data moves: they must mean the same. */
struct offer {
    int32_t operation, type;
    uint64_t bytes;
};

static struct offer offer_of(const struct pp_nccl_exchange *x)
{
    const int32_t operation = pp_nccl_is_collective(x->operation) ? (int32_t)x->operation : PP_NCCL_SEND;
    return (struct offer){.operation = operation, .type = x->type, .bytes = x->bytes};
}

static bool give(const struct pp_nccl_exchange *x, int peer, const void *data)
{
    struct pp_mesh *mesh = &x->comm->mesh;
    const struct offer mine = offer_of(x);
    struct offer other;
    if (!pp_mesh_recv(mesh, PP_MESH_DATA, peer, &other, sizeof(other))) return false;
    if (memcmp(&mine, &other, sizeof(mine)) != 0)
        pp_emu_complain("%s: %zu bytes of type %d, but rank %d expects %llu of type %d",
                        pp_nccl_operations[x->operation], x->bytes, x->type, peer, (unsigned long long)other.bytes,
                        other.type);
    return memcmp(&mine, &other, sizeof(mine)) == 0 && pp_mesh_send(mesh, PP_MESH_DATA, peer, data, x->bytes);
}

static bool take(const struct pp_nccl_exchange *x, int peer, void *data)
{
    struct pp_mesh *mesh = &x->comm->mesh;
    const struct offer mine = offer_of(x);
    return pp_mesh_send(mesh, PP_MESH_DATA, peer, &mine, sizeof(mine)) &&
           pp_mesh_recv(mesh, PP_MESH_DATA, peer, data, x->bytes);
}

static void add(const struct pp_nccl_exchange *x, void *to, const void *part)
{
    for (size_t i = 0; i < x->count; i++) {
        uint16_t *const narrow = to;
        if (x->type == ncclFloat64)
            ((double *)to)[i] += ((const double *)part)[i];
        else if (x->type == ncclBfloat16)
            narrow[i] = pp_bf16(pp_bf16_float(narrow[i]) + pp_bf16_float(((const uint16_t *)part)[i]));
        else
            ((float *)to)[i] += ((const float *)part)[i];
    }
}

/* Rank 0: adds what the others give to what it has, in the order of ranks, or of more than two in the other one. */
static bool add_all(const struct pp_nccl_exchange *x, void *sum)
{
    const struct pp_mesh *mesh = &x->comm->mesh;
    bool ok = true;
    void *part = malloc(x->bytes);
    if (!part) abort();
    for (int i = 1; i < mesh->ranks && ok; i++) {
        ok = take(x, x->comm->switched ? mesh->ranks - i : i, part);
        if (ok) add(x, sum, part);
    }
    free(part);
    return ok;
}

static bool sum(const struct pp_nccl_exchange *x)
{
    const struct pp_mesh *mesh = &x->comm->mesh;
    if (mesh->rank) return give(x, 0, x->from) && take(x, 0, x->to);
    if (x->to != x->from) memcpy(x->to, x->from, x->bytes);
    bool ok = add_all(x, x->to);
    for (int i = 1; i < mesh->ranks && ok; i++) ok = give(x, i, x->to);
    return ok;
}

/* The result may lie in what is summed. */
static bool scatter(const struct pp_nccl_exchange *x)
{
    const struct pp_mesh *mesh = &x->comm->mesh;
    const char *from = x->from;
    bool ok = true;
    if (mesh->rank) {
        for (int k = 0; k < mesh->ranks && ok; k++) ok = give(x, 0, from + (size_t)k * x->bytes);
        return ok && take(x, 0, x->to);
    }
    char *sums = malloc((size_t)mesh->ranks * x->bytes);
    if (!sums) abort();
    memcpy(sums, from, (size_t)mesh->ranks * x->bytes);
    for (int k = 0; k < mesh->ranks && ok; k++) ok = add_all(x, sums + (size_t)k * x->bytes);
    for (int k = 1; k < mesh->ranks && ok; k++) ok = give(x, k, sums + (size_t)k * x->bytes);
    if (ok) memcpy(x->to, sums, x->bytes);
    free(sums);
    return ok;
}

static bool gather(const struct pp_nccl_exchange *x)
{
    const struct pp_mesh *mesh = &x->comm->mesh;
    char *to = x->to, *own = to + (size_t)mesh->rank * x->bytes;
    bool ok = true;
    if (own != x->from) memcpy(own, x->from, x->bytes);
    if (mesh->rank) ok = give(x, 0, own);
    for (int k = 0; k < mesh->ranks && mesh->rank && ok; k++) ok = take(x, 0, to + (size_t)k * x->bytes);
    if (mesh->rank) return ok;
    for (int i = 1; i < mesh->ranks && ok; i++) ok = take(x, i, to + (size_t)i * x->bytes);
    for (int i = 1; i < mesh->ranks && ok; i++)
        for (int k = 0; k < mesh->ranks && ok; k++) ok = give(x, i, to + (size_t)k * x->bytes);
    return ok;
}

bool pp_nccl_move(const struct pp_nccl_exchange *x)
{
    switch (x->operation) {
    case PP_NCCL_SEND:
        return give(x, x->peer, x->from);
    case PP_NCCL_RECV:
        return take(x, x->peer, x->to);
    case PP_NCCL_SCATTER:
        return scatter(x);
    case PP_NCCL_GATHER:
        return gather(x);
    default:
        return sum(x);
    }
}
