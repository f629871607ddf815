/* SPDX-License-Identifier: Apache-2.0
 *
 * The sockets between the ranks of an emulated communicator, threads of one process or processes of one host: abstract
 * Unix sockets that the unique id names. Two for each pair: one for hosts (making connections), one for the data.
 */
#ifndef PP_EMULATOR_NCCL_MESH_H
#define PP_EMULATOR_NCCL_MESH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pp_mesh_use { PP_MESH_HOSTS, PP_MESH_DATA, PP_MESH_USES };
enum { PP_MESH_RANKS = 64, PP_MESH_ID_BYTES = 64 };

/* What ranks tell each other first. */
struct pp_mesh_rank {
    int32_t rank, ranks, device;
    uint32_t host; /* a hash */
};

struct pp_mesh {
    int rank, ranks;
    int fd[PP_MESH_USES][PP_MESH_RANKS]; /* -1: none */
    struct pp_mesh_rank peer[PP_MESH_RANKS];
    atomic_bool cut; /* nothing goes on any more */
};

/* Blocks until all ranks are there. False: a socket failed, with a message. */
bool pp_mesh_open(struct pp_mesh *mesh, const char *id, const struct pp_mesh_rank *me, char *message, size_t size);
void pp_mesh_close(struct pp_mesh *mesh);
/* Ends all that waits in it. */
void pp_mesh_cut(struct pp_mesh *mesh);

/* All bytes or nothing. False: the peer is gone or the mesh was cut. */
bool pp_mesh_send(struct pp_mesh *mesh, enum pp_mesh_use use, int peer, const void *data, size_t bytes);
bool pp_mesh_recv(struct pp_mesh *mesh, enum pp_mesh_use use, int peer, void *data, size_t bytes);

#endif
