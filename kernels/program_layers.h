/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the model: which layers of a stage a program writes. Where calls are to stand once (pp_program_spec.once), a
 * layer that does what one before it did is not written, but its calls are named again in pp_program.order. That is
 * right because nothing is carried from layer to layer but what operands refer to: a layer takes no scratch, all that
 * it began beside its calls has ended, and each FP8 gradient has been read. A program goes through its layers once.
 */
#ifndef PP_KERNELS_PROGRAM_LAYERS_H
#define PP_KERNELS_PROGRAM_LAYERS_H

#include <stdbool.h>

#include "core/base/status.h"
#include "core/shape/layers.h"

struct pp_writer;

struct pp_layers {
    bool once;
    /* The calls of the first layer of each sort: calls differ by the layer's look, by whether its input is kept, and
     * where its writer says so. n 0: there is none yet. */
    struct {
        int first, n;
    } of[4 * PP_LAYER_LOOKS];
    int writing;      /* 1 + the sort of the layer that is being written; 0: none is */
    int ordered;      /* so many calls are in pp_program.order, if that has been begun */
    int64_t room;     /* of pp_program.order */
    pp_status status; /* PP_NOMEM: there is none */
};

/* Behind all calls of the layer before. Is layer l of the stage to be written? apart: it has other calls than layers
 * of its sort. */
bool pp_writer_begin_layer(struct pp_writer *w, int l, bool apart);

/* Ends pp_program.order behind the last call. PP_NOMEM. */
pp_status pp_writer_end_layers(struct pp_writer *w) PP_MUST_CHECK;

#endif
