/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers: the state that they keep for each weight, and the numbers that their kernels take from options, learning
 * rate and step number. CONTRIBUTING.md says how to add one.
 *
 * sgd: w -= rate * g. adamw: decoupled weight decay, as torch.optim.AdamW does it with its defaults (Loshchilov and
 * Hutter, arXiv:1711.05101, algorithm 2): all tensors decay, epsilon is added to the corrected root. adamw-bf16: the
 * same, but both moments are kept in bfloat16, rounded to the nearest after each step, which uses them unrounded.
 * DeepSeek-V3's training (arXiv:2412.19437, section 3.3.2) and Megatron-LM with --exp-avg-dtype bf16
 * --exp-avg-sq-dtype bf16 keep them so.
 */
#ifndef PP_CORE_SHAPE_OPTIMIZER_H
#define PP_CORE_SHAPE_OPTIMIZER_H

#include <stdint.h>

enum pp_optimizer { PP_SGD, PP_ADAMW, PP_ADAMW_BF16, PP_OPTIMIZERS };
#define PP_OPTIMIZER_NAMES "sgd|adamw|adamw-bf16"

enum { PP_OPTIMIZER_STATES = 2 };

struct pp_optimizer_info {
    const char *name;
    int states;      /* tensors that it keeps for each weight tensor, of the same shape; they begin with zeros */
    int state_bytes; /* of an element: 4, float32; 2, bfloat16 */
    const char *state_names[PP_OPTIMIZER_STATES]; /* their names in files, the same as PyTorch's */
    double learning_rate; /* default of --lr if the preset's optimizer has another one; 0: the preset's rate */
};
extern const struct pp_optimizer_info pp_optimizers[PP_OPTIMIZERS];

/* Options of adamw. */
struct pp_adamw_options {
    double beta1, beta2, epsilon, weight_decay;
};

/* The numbers of one step of adamw. With the weight w, its states m and v, and the clipped gradient g, the kernel does
 *   w = w * keep
 *   m = m + mean_gain * (g - m)
 *   v = v * square_keep + square_gain * g * g
 *   w = w - rate * m / (sqrt(v) / square_root + epsilon) */
struct pp_adamw {
    float keep;                     /* 1 - learning rate * weight decay */
    float mean_gain;                /* 1 - beta1 */
    float square_keep, square_gain; /* beta2, 1 - beta2 */
    float rate;                     /* learning rate / (1 - beta1^t) */
    float square_root;              /* sqrt(1 - beta2^t) */
    float epsilon;
};

/* The numbers of step number `step`, counted from 0 over the whole run; above, t = step + 1. Computed in double, as
 * PyTorch does. */
struct pp_adamw pp_adamw_at(const struct pp_adamw_options *options, double learning_rate, int64_t step);

#endif
