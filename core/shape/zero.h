/* SPDX-License-Identifier: Apache-2.0
 *
 * How much workers that hold the same parameters share among each other: the stages of ZeRO (Rajbhandari et al. 2020,
 * "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models"). Each stage shares what those before it do.
 */
#ifndef PP_CORE_SHAPE_ZERO_H
#define PP_CORE_SHAPE_ZERO_H

enum pp_zero {
    PP_ZERO_NONE,
    PP_ZERO_OPTIMIZER, /* the optimizer's state: each steps a share of every tensor */
    PP_ZERO_GRADIENTS, /* gradients: each keeps the sums of its share alone */
    PP_ZERO_PARAMETERS /* parameters: a part of a stage is gathered before it is read */
};

#endif
