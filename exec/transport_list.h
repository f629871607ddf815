/* SPDX-License-Identifier: Apache-2.0
 *
 * The transports there are, for the registry in transport.c.
 */
#ifndef PP_EXEC_TRANSPORT_LIST_H
#define PP_EXEC_TRANSPORT_LIST_H

#include "exec/transport.h"

extern const struct pp_transport pp_transport_inproc;
extern const struct pp_transport pp_transport_mpi;

#endif
