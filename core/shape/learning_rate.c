/* SPDX-License-Identifier: Apache-2.0 */
#include "core/shape/learning_rate.h"

#include <math.h>

double pp_lr_share(const struct pp_lr_options *o, double lr, int64_t step)
{
    if (step < o->warmup_steps) return (double)(step + 1) / o->warmup_steps;
    if (o->schedule == PP_LR_CONSTANT || lr == 0) return 1;
    const double x = fmin(1, (double)(step - o->warmup_steps) / ((double)o->steps - o->warmup_steps));
    const double kept = o->schedule == PP_LR_COSINE ? (1 + cos(M_PI * x)) / 2 : 1 - x;
    return kept + (1 - kept) * (o->least / lr);
}
