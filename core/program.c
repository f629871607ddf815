/* SPDX-License-Identifier: Apache-2.0 */
#include "core/program.h"

#include <stdlib.h>
#include <string.h>

const char *const pp_precision_names[] = {"fp32", "tf32", "bf16"};
const char *const pp_context_kind_names[] = {"a2a", "all_gather"};
const char *const pp_activation_names[] = {"relu", "gelu", "swiglu", "gelu-tanh"};

void pp_program_free(struct pp_program *program)
{
    if (!program) return;
    free(program->calls);
    memset(program, 0, sizeof *program);
}
