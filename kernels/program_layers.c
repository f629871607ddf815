/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/program_layers.h"

#include "kernels/model_program.h"

static int sort_of(const struct pp_writer *w, int l, bool apart)
{
    const int look = pp_layer_look(&w->model->shape, w->stage->first_layer + l);
    return 4 * look + 2 * pp_writer_keeps(w, l) + apart;
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
    const int sort = sort_of(w, l, apart), before = layers->writing - 1;
    if (!layers->once) return true;
    if (before >= 0) layers->of[before].n = w->out->ncalls - layers->of[before].first;
    layers->writing = 0;
    if (layers->of[sort].n == 0) {
        layers->of[sort].first = w->out->ncalls;
        layers->writing = 1 + sort;
        return true;
    }
    catch_up(w);
    append(w, layers->of[sort].first, layers->of[sort].n);
    return false;
}

pp_status pp_writer_end_layers(struct pp_writer *w)
{
    if (w->out->order) catch_up(w);
    return w->layers.status;
}
