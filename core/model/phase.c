/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "core/model/layout.h"
#include "core/plan/plan_spec.h"

struct pp_program_spec pp_slot_spec(int seq, int rows, bool training, int checkpoint)
{
    return (struct pp_program_spec){.seq = seq,
                                    .slot_rows = rows,
                                    .training = training,
                                    .checkpoint_layers = training && checkpoint == PP_CHECKPOINT_LAYERS,
                                    .again = training ? pp_checkpoint_some(checkpoint) : 0,
                                    .activation_again = training && checkpoint == PP_CHECKPOINT_ACTIVATION};
}

struct pp_program_spec pp_phase_spec(const struct pp_phase *phase, int rows)
{
    const struct pp_plan *plan = phase->plan;
    struct pp_program_spec spec = pp_slot_spec(phase->seq, rows, plan->training, plan->checkpoint);
    spec.clip = plan->clip;
    spec.split_backward = plan->split_backward;
    spec.once = phase->once;
    return spec;
}

/* Programs that are not to be run may differ in operands, and in what dropout asks for: the number of the layer. */
static bool tells_layers_apart(const struct pp_phase *phase, const struct pp_shape *shape)
{
    return shape->dropout > 0 && !phase->once;
}

/* A class and its stage. */
struct which {
    const struct pp_class *cls;
    const struct pp_stage *stage;
};

/* Do layers of two stages that are alike make the same calls, for the same operands in the stage's memory? */
static bool calls_alike(const struct pp_phase *phase, const struct pp_shape *shape, const struct pp_stage *a,
                        const struct pp_stage *b)
{
    const int between = b->first_layer - a->first_layer, skip = shape->window_skip;
    return between == 0 || (!tells_layers_apart(phase, shape) && (skip == 0 || between % skip == 0));
}

/* Do layers of two stages that are alike, each counted within its stage, make the same calls for other operands? */
static bool layers_alike(const struct pp_shape *shape, int again, struct which a, int of_a, struct which b, int of_b)
{
    return pp_layer_look(shape, a.stage->first_layer + of_a) == pp_layer_look(shape, b.stage->first_layer + of_b) &&
           (of_a < again) == (of_b < again);
}

/* Are the classes about the same part of two stages that are alike? In programs that are not to be run also about
 * others, of the same layers, between the ends of their stages. */
static bool parts_alike(const struct pp_phase *phase, const struct pp_shape *shape, struct which a, struct which b)
{
    if (a.cls->part == b.cls->part && a.cls->parts == b.cls->parts) return true;
    const struct pp_stage_part of_a = pp_stage_part_of(a.stage, a.cls), of_b = pp_stage_part_of(b.stage, b.cls);
    const int n = of_a.end - of_a.begin, again = pp_phase_spec(phase, 0).again;
    if (!phase->once || n != of_b.end - of_b.begin) return false;
    bool between = !of_a.lowest && !of_a.highest && !of_b.lowest && !of_b.highest;
    for (int l = 0; l < n && between; l++) between = layers_alike(shape, again, a, of_a.begin + l, b, of_b.begin + l);
    return between;
}

/* Have the classes, of two stages that are alike, the same program? */
static bool alike(const struct pp_phase *phase, const struct pp_shape *shape, struct which a, struct which b)
{
    return a.cls->kind == b.cls->kind && a.cls->rows == b.cls->rows && a.cls->rounds == b.cls->rounds &&
           a.cls->adds == b.cls->adds && parts_alike(phase, shape, a, b) && calls_alike(phase, shape, a.stage, b.stage);
}

static struct which which_of(const struct pp_plan *plan, const struct pp_model *model, int c)
{
    const struct pp_class *cls = &plan->classes[c];
    return (struct which){cls, &model->stages[cls->stage]};
}

/* The programs so far, of stages of one group (of one stage, where layers are told apart): chains of classes. */
struct programs {
    const struct pp_model *model;
    const struct pp_model_ops *ops;
    const struct pp_lender *lender;
    struct pp_phase *phase;
    int slot_rows; /* all slots have room for so many rows; 0: for those of the class */
    int *last;     /* [stages] of each group, or stage; -1: none */
    int *before;   /* [nclasses] the class before it in the chain; -1: none */
};

/* The class in the chain whose program is that of class c; c itself, which is put into the chain, if there is none. */
static int find_same(struct programs *p, int c)
{
    const struct pp_shape *shape = &p->model->shape;
    const struct which which = which_of(p->phase->plan, p->model, c);
    const int stage = which.cls->stage;
    int *last = &p->last[tells_layers_apart(p->phase, shape) ? stage : which.stage->group], at = *last;
    while (at >= 0 && !alike(p->phase, shape, which_of(p->phase->plan, p->model, at), which)) at = p->before[at];
    if (at >= 0) return at;
    p->before[c] = *last;
    return *last = c;
}

/* The class of the lender whose program is that of class c; -1: there is none. */
static int find_lent(const struct programs *p, int c)
{
    const struct pp_shape *shape = &p->model->shape;
    const struct which which = which_of(p->phase->plan, p->model, c);
    const struct pp_phase *lending = p->lender ? p->lender->phase : NULL;
    if (lending && lending->once && !p->phase->once) return -1; /* one that cannot be run */
    for (int i = 0; lending && i < lending->plan->nclasses; i++) {
        const struct which other = which_of(lending->plan, p->lender->model, i);
        if (lending->same_as[i] == i && alike(p->phase, shape, other, which) &&
            pp_stages_alike(shape, other.stage, which.stage))
            return i;
    }
    return -1;
}

static pp_status find_program(struct programs *p, int c)
{
    struct pp_phase *phase = p->phase;
    const struct pp_class *cls = &phase->plan->classes[c];
    const struct pp_program_spec spec = pp_phase_spec(phase, p->slot_rows ? p->slot_rows : cls->rows);
    const int same = find_same(p, c);
    phase->same_as[c] = same;
    phase->lent[c] = same < c ? phase->lent[same] : find_lent(p, c);
    if (same == c && phase->lent[c] < 0) return p->ops->program(p->model, cls, &spec, &phase->programs[c]);
    phase->programs[c] = same < c ? phase->programs[same] : p->lender->phase->programs[phase->lent[c]];
    return PP_OK;
}

static pp_status find_programs(struct programs *p)
{
    const struct pp_plan *plan = p->phase->plan;
    for (int s = 0; s < p->model->nstages; s++) p->last[s] = -1;
    for (int c = 0; c < plan->nclasses; c++) {
        p->phase->same_as[c] = c;
        p->phase->lent[c] = -1;
        if (pp_kinds[plan->classes[c].kind].computes) PP_TRY(find_program(p, c));
    }
    return PP_OK;
}

pp_status pp_phase_create(const struct pp_model *model, const struct pp_model_ops *ops, const struct pp_lender *lender,
                          struct pp_phase *phase)
{
    const struct pp_plan *plan = phase->plan;
    struct programs programs = {.model = model, .ops = ops, .lender = lender, .phase = phase};
    pp_status status;
    if (plan->slot_microbatches > 1) programs.slot_rows = pp_plan_most_slot_rows(plan);
    PP_TRY_DONE(PP_NEW(&phase->same_as, plan->nclasses));
    PP_TRY_DONE(PP_NEW(&phase->lent, plan->nclasses));
    PP_TRY_DONE(PP_NEW(&phase->programs, plan->nclasses));
    PP_TRY_DONE(PP_NEW(&programs.last, model->nstages));
    PP_TRY_DONE(PP_NEW(&programs.before, plan->nclasses));
    status = find_programs(&programs);
done:
    free(programs.last);
    free(programs.before);
    return status;
}

void pp_phase_free(struct pp_phase *phase)
{
    for (int c = 0; phase->programs && c < phase->plan->nclasses; c++)
        if (phase->same_as[c] == c && phase->lent[c] < 0) pp_program_free(&phase->programs[c]);
    free(phase->programs);
    free(phase->same_as);
    free(phase->lent);
    *phase = (struct pp_phase){0};
}
