/* SPDX-License-Identifier: Apache-2.0
 *
 * What the processes of a run agree on (exec/agree.h).
 */
#ifndef PP_EXEC_TERMS_H
#define PP_EXEC_TERMS_H

#include "exec/exec.h"

/* As pp_agree(); all set exec->agreed where they return PP_INPUT. */

/* On no more than the status: what there is of devices, each process sees by itself. */
pp_status pp_agree_on_status(struct pp_exec *exec, pp_status status) PP_MUST_CHECK;
/* Before the first of `points` configurations: version, device, options and data. Not what each process may have of its
 * own: where its files lie, its GPUs, what it prints. */
pp_status pp_agree_on_options(struct pp_exec *exec, int points, pp_status status) PP_MUST_CHECK;
/* On nothing: where another process's device computes otherwise, as processors of another kind do, bits depend on who
 * does what; then the text of this one's says so. Warns. */
pp_status pp_compare_devices(struct pp_exec *exec) PP_MUST_CHECK;
/* Before a configuration is trained: its plans, stages and accumulation key. job: where status is PP_OK. */
pp_status pp_agree_on_job(struct pp_exec *exec, const struct pp_job *job, pp_status status) PP_MUST_CHECK;

#endif
