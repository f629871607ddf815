/* SPDX-License-Identifier: Apache-2.0 */
#include "core/shape.h"

const char *const pp_precision_names[] = {"fp32", "tf32", "bf16"};
const char *const pp_context_kind_names[] = {"a2a", "all_gather"};
const char *const pp_activation_names[] = {"relu", "gelu", "swiglu", "gelu-tanh"};
const char *const pp_bias_words[] = {
    [PP_BIAS] = "", [PP_NO_BIAS] = " nobias", [PP_BIAS_LAYERS] = " layerbias", [PP_BIAS_QKV] = " qkvbias"};
