/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers: what a step keeps beside each weight, and the numbers that it takes from options, learning rate and count
 * of steps. A new one is a name of --optimizer, a row here, a kernel (kernels/kernels.h) and the numbers it reads.
 *
 * sgd: w -= rate * g. adamw: decoupled weight decay, as torch.optim.AdamW does it with its defaults (Loshchilov and
 * Hutter, arXiv:1711.05101, algorithm 2): all tensors decay, epsilon is added to the corrected root.
 */
#ifndef PP_CORE_OPTIMIZER_H
#define PP_CORE_OPTIMIZER_H

#include <stdint.h>

enum pp_optimizer { PP_SGD, PP_ADAMW, PP_OPTIMIZERS };
#define PP_OPTIMIZER_NAMES "sgd|adamw"

enum { PP_OPTIMIZER_STATES = 2 };

struct pp_optimizer_info {
    const char *name;
    int states; /* tensors of float32 that it keeps for each weight tensor, in the weight's shape; 0 at the start */
    const char *state_names[PP_OPTIMIZER_STATES]; /* PyTorch's, for files */
    double learning_rate; /* where the preset has another optimizer and --lr was not given; 0: the preset's */
};
extern const struct pp_optimizer_info pp_optimizers[PP_OPTIMIZERS];

/* Options of adamw. */
struct pp_adamw_options {
    double beta1, beta2, epsilon, weight_decay;
};

/* What the kernel of adamw multiplies with in one step: g is the clipped gradient,
 * w = w * keep; m += mean_gain * (g - m); v = v * square_keep + square_gain * g * g;
 * w -= rate * m / (sqrt(v) / square_root + epsilon) */
struct pp_adamw {
    float keep;                     /* 1 - learning rate * weight decay */
    float mean_gain;                /* 1 - beta1 */
    float square_keep, square_gain; /* beta2, 1 - beta2 */
    float rate;                     /* learning rate / (1 - beta1^t) */
    float square_root;              /* sqrt(1 - beta2^t) */
    float epsilon;
};

/* step: counted from 0 over the whole run; t = step + 1. Computed in double, as PyTorch does. */
struct pp_adamw pp_adamw_at(const struct pp_adamw_options *options, double learning_rate, int64_t step);

#endif
