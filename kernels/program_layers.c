/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/program_layers.h"

#include "kernels/model_program.h"

static int look_of(const struct pp_writer *w, int l, bool apart)
{
    const bool experts = pp_writer_kind(w, l) == PP_LAYER_EXPERTS;
    const bool window = pp_layer_window(&w->model->shape, w->stage->first_layer + l) > 0;
    return experts | window << 1 | pp_writer_keeps(w, l) << 2 | apart << 3;
}

/* Puts n calls into the order. */
static void append(struct pp_writer *w, int first, int n)
{
    struct pp_layers *layers = &w->layers;
    struct pp_program *out = w->out;
    if (layers->status == PP_OK) layers->status = PP_GROW(&out->order, (int64_t)out->length + n, &layers->room);
    for (int i = 0; i < n && layers->status == PP_OK; i++) out->order[out->length++] = first + i;
}

/* Those that were written since. */
static void catch_up(struct pp_writer *w)
{
    append(w, w->layers.ordered, w->out->ncalls - w->layers.ordered);
    w->layers.ordered = w->out->ncalls;
}

bool pp_writer_begin_layer(struct pp_writer *w, int l, bool apart)
{
    struct pp_layers *layers = &w->layers;
    const int look = look_of(w, l, apart), before = layers->writing - 1;
    if (!layers->once) return true;
    if (before >= 0) layers->of[before].n = w->out->ncalls - layers->of[before].first;
    layers->writing = 0;
    if (layers->of[look].n == 0) {
        layers->of[look].first = w->out->ncalls;
        layers->writing = 1 + look;
        return true;
    }
    catch_up(w);
    append(w, layers->of[look].first, layers->of[look].n);
    return false;
}

pp_status pp_writer_end_layers(struct pp_writer *w)
{
    if (w->out->order) catch_up(w);
    return w->layers.status;
}
