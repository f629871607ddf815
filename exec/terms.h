/* SPDX-License-Identifier: Apache-2.0
 *
 * What the processes of a run agree on (exec/agree.h).
 */
#ifndef PP_EXEC_TERMS_H
#define PP_EXEC_TERMS_H

#include "exec/agree.h"
#include "exec/exec.h"

/* Adds the options of a program (enum pp_tool). Files may have other names in other processes: of a path it only counts
 * that there is one. */
void pp_terms_add_options(const struct pp_config *config, int tool, struct pp_terms *terms);

/* The other functions, but for pp_compare_devices(), are as pp_agree(), whose PP_INPUT also sets exec->agreed. */

/* Compares only the status: whether all processes found the devices that they need. */
pp_status pp_agree_on_status(struct pp_exec *exec, pp_status status) PP_MUST_CHECK;
/* Before the first of n configurations: compares version, device, options, configurations and data. Options in which
 * processes may differ are not compared: paths of files, GPUs, what is printed. */
pp_status pp_agree_on_options(struct pp_exec *exec, const struct pp_point *points, int n,
                              pp_status status) PP_MUST_CHECK;
/* Compares the devices. Where processes have different ones, such as processors of another kind, bits depend on which
 * worker does what: warns, sets exec->mixed, and says so in exec->device_text. That is no failure. */
pp_status pp_compare_devices(struct pp_exec *exec) PP_MUST_CHECK;
/* Before a configuration is trained: compares its plans, stages and accumulation key, the times that a device waits
 * for, the checkpoint from which it goes on, and the file of --init. session: read only where status is PP_OK. Also
 * fails as pp_weights_content(). */
pp_status pp_agree_on_job(struct pp_exec *exec, const struct pp_session *session, pp_status status) PP_MUST_CHECK;

#endif
