/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded into a program: the call that PP_MPI_FAILS names ends as errors of the library do, by way of the
 * communicator's handler.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default"))) extern

static bool fails(const char *call, MPI_Comm comm)
{
    const char *wanted = getenv("PP_MPI_FAILS");
    if (!wanted || strcmp(wanted, call) != 0) return false;
    if (comm != MPI_COMM_NULL) MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER); /* may not return */
    return true;
}

EXPORT int MPI_Comm_size(MPI_Comm comm, int *size)
{
    return fails("MPI_Comm_size", comm) ? MPI_ERR_OTHER : PMPI_Comm_size(comm, size);
}

EXPORT int MPI_Comm_rank(MPI_Comm comm, int *rank)
{
    return fails("MPI_Comm_rank", comm) ? MPI_ERR_OTHER : PMPI_Comm_rank(comm, rank);
}

EXPORT int MPI_Comm_free(MPI_Comm *comm)
{
    return fails("MPI_Comm_free", *comm) ? MPI_ERR_OTHER : PMPI_Comm_free(comm);
}

EXPORT int MPI_Get_count(const MPI_Status *status, MPI_Datatype type, int *count)
{
    return fails("MPI_Get_count", MPI_COMM_WORLD) ? MPI_ERR_OTHER : PMPI_Get_count(status, type, count);
}

EXPORT int MPI_Finalize(void)
{
    const int code = PMPI_Finalize();
    return fails("MPI_Finalize", MPI_COMM_NULL) ? MPI_ERR_OTHER : code;
}

EXPORT int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out)
{
    return fails("MPI_Comm_split_type", comm) ? MPI_ERR_OTHER : PMPI_Comm_split_type(comm, type, key, info, out);
}

EXPORT int MPI_Bcast(void *buffer, int n, MPI_Datatype type, int root, MPI_Comm comm)
{
    return fails("MPI_Bcast", comm) ? MPI_ERR_OTHER : PMPI_Bcast(buffer, n, type, root, comm);
}

EXPORT int MPI_Allreduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op operation, MPI_Comm comm)
{
    return fails("MPI_Allreduce", comm) ? MPI_ERR_OTHER : PMPI_Allreduce(from, to, n, type, operation, comm);
}

EXPORT int MPI_Iallgather(const void *from, int n, MPI_Datatype type, void *to, int m, MPI_Datatype type_to,
                          MPI_Comm comm, MPI_Request *request)
{
    return fails("MPI_Iallgather", comm) ? MPI_ERR_OTHER
                                         : PMPI_Iallgather(from, n, type, to, m, type_to, comm, request);
}

EXPORT int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *out)
{
    return fails("MPI_Comm_dup", comm) ? MPI_ERR_OTHER : PMPI_Comm_dup(comm, out);
}

EXPORT int MPI_Isend(const void *from, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    return fails("MPI_Isend", comm) ? MPI_ERR_OTHER : PMPI_Isend(from, n, type, to, tag, comm, request);
}
