/* SPDX-License-Identifier: Apache-2.0 */
#include "core/shape/optimizer.h"

#include <float.h>
#include <math.h>

#define MOMENTS                                                                                                        \
    {                                                                                                                  \
        "exp_avg", "exp_avg_sq"                                                                                        \
    }

const struct pp_optimizer_info pp_optimizers[PP_OPTIMIZERS] = {
    [PP_SGD] = {.name = "sgd"},
    [PP_ADAMW] = {"adamw", 2, sizeof(float), MOMENTS, 1e-3},
    [PP_ADAMW_BF16] = {"adamw-bf16", 2, sizeof(uint16_t), MOMENTS, 1e-3},
};

static float float_of(double x) { return (float)fmax(-FLT_MAX, fmin(x, FLT_MAX)); }

struct pp_adamw pp_adamw_at(const struct pp_adamw_options *o, double learning_rate, int64_t step)
{
    const double t = (double)step + 1;
    return (struct pp_adamw){.keep = float_of(1 - learning_rate * o->weight_decay),
                             .mean_gain = (float)(1 - o->beta1),
                             .square_keep = (float)o->beta2,
                             .square_gain = (float)(1 - o->beta2),
                             .rate = float_of(learning_rate / (1 - pow(o->beta1, t))),
                             .square_root = (float)sqrt(1 - pow(o->beta2, t)),
                             .epsilon = (float)o->epsilon};
}
