/* SPDX-License-Identifier: Apache-2.0 */
#include "nccl_mesh.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "emulator.h"

/* The first bytes on a socket. */
struct hello {
    int32_t use;
    struct pp_mesh_rank me;
};

static socklen_t address_of(struct sockaddr_un *address, const char *id, int rank)
{
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    const int n = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "pp-nccl-%s-%d", id, rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static bool whole(int fd, void *data, size_t bytes, bool out)
{
    char *p = data;
    while (bytes) {
        const ssize_t n = out ? send(fd, p, bytes, MSG_NOSIGNAL) : recv(fd, p, bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* Lower ranks listen; they may not be there yet. */
static int dial(struct pp_mesh *mesh, const char *id, int peer)
{
    struct sockaddr_un address;
    const socklen_t size = address_of(&address, id, peer);
    while (!atomic_load(&mesh->cut)) {
        const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&address, size) == 0) return fd;
        close(fd);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return -1;
}

static bool greet(struct pp_mesh *mesh, int fd, enum pp_mesh_use use, const struct pp_mesh_rank *me)
{
    struct hello mine = {.use = use, .me = *me}, other;
    if (!whole(fd, &mine, sizeof(mine), true) || !whole(fd, &other, sizeof(other), false)) return false;
    mesh->fd[use][other.me.rank] = fd;
    mesh->peer[other.me.rank] = other.me;
    return true;
}

static bool answer(struct pp_mesh *mesh, int fd, const struct pp_mesh_rank *me)
{
    struct hello mine = {.me = *me}, other;
    if (!whole(fd, &other, sizeof(other), false)) return false;
    mine.use = other.use;
    mesh->fd[other.use][other.me.rank] = fd;
    mesh->peer[other.me.rank] = other.me;
    return whole(fd, &mine, sizeof(mine), true);
}

static bool meet(struct pp_mesh *mesh, const char *id, const struct pp_mesh_rank *me, int listener)
{
    for (int peer = 0; peer < me->rank; peer++) {
        for (int use = 0; use < PP_MESH_USES; use++) {
            const int fd = dial(mesh, id, peer);
            if (fd < 0 || !greet(mesh, fd, (enum pp_mesh_use)use, me)) return false;
        }
    }
    for (int left = (me->ranks - 1 - me->rank) * PP_MESH_USES; left > 0; left--) {
        const int fd = accept(listener, NULL, NULL);
        if (fd < 0 || !answer(mesh, fd, me)) return false;
    }
    return true;
}

bool pp_mesh_open(struct pp_mesh *mesh, const char *id, const struct pp_mesh_rank *me, char *message, size_t size)
{
    struct sockaddr_un address;
    mesh->rank = me->rank;
    mesh->ranks = me->ranks;
    mesh->peer[me->rank] = *me;
    memset(mesh->fd, -1, sizeof(mesh->fd));
    const socklen_t length = address_of(&address, id, me->rank);
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) || listen(listener, PP_MESH_RANKS)) {
        snprintf(message, size, "rank %d of this id: %s", me->rank, strerror(errno));
        if (listener >= 0) close(listener);
        return false;
    }
    pp_emu_hide();
    const bool met = meet(mesh, id, me, listener);
    pp_emu_show();
    close(listener);
    if (!met) snprintf(message, size, "a rank went away while the communicator was made: %s", strerror(errno));
    return met;
}

void pp_mesh_close(struct pp_mesh *mesh)
{
    for (int use = 0; use < PP_MESH_USES; use++) {
        for (int i = 0; i < mesh->ranks; i++) {
            if (mesh->fd[use][i] >= 0) close(mesh->fd[use][i]);
        }
    }
}

void pp_mesh_cut(struct pp_mesh *mesh)
{
    atomic_store(&mesh->cut, true);
    for (int use = 0; use < PP_MESH_USES; use++) {
        for (int i = 0; i < mesh->ranks; i++) {
            if (mesh->fd[use][i] >= 0) shutdown(mesh->fd[use][i], SHUT_RDWR);
        }
    }
}

bool pp_mesh_send(struct pp_mesh *mesh, enum pp_mesh_use use, int peer, const void *data, size_t bytes)
{
    pp_emu_hide();
    const bool sent = whole(mesh->fd[use][peer], (void *)(uintptr_t)data, bytes, true);
    pp_emu_show();
    return sent && !atomic_load(&mesh->cut);
}

bool pp_mesh_recv(struct pp_mesh *mesh, enum pp_mesh_use use, int peer, void *data, size_t bytes)
{
    pp_emu_hide();
    const bool came = whole(mesh->fd[use][peer], data, bytes, false);
    pp_emu_show();
    return came && !atomic_load(&mesh->cut);
}
