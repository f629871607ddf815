/* SPDX-License-Identifier: Apache-2.0
 *
 * Words in the names by which times of tasks are kept and found, where others than their writers look for them:
 * signatures (kernels/signature.c, pp_program.signature) and contexts (pp_job_context()).
 */
#ifndef PP_CORE_MODEL_TASK_NAMES_H
#define PP_CORE_MODEL_TASK_NAMES_H

#include <string.h>

/* "B 2l d200 h2 ff200 causal seq35 rows5": a signature ends with the number of rows, unless it is of norm or step. */
#define PP_NAME_ROWS " rows"
/* "1f1b never share 1/4": a context ends with the share of a GPU, unless a worker has all of it. */
#define PP_NAME_SHARE " share "

/* The digits at the end of a signature; NULL: there are none. */
static inline const char *pp_signature_rows(const char *signature)
{
    const char *word = strstr(signature, PP_NAME_ROWS);
    return word ? word + strlen(PP_NAME_ROWS) : NULL;
}

/* " share 1/4" at the end of a context, or "". */
static inline const char *pp_context_share(const char *context)
{
    const char *word = strstr(context, PP_NAME_SHARE);
    return word ? word : "";
}

#endif
