/* SPDX-License-Identifier: Apache-2.0 */
#include "core/model/program.h"

#include <stdlib.h>
#include <string.h>

void pp_program_free(struct pp_program *program)
{
    if (!program) return;
    free(program->calls);
    free(program->order);
    memset(program, 0, sizeof *program);
}
