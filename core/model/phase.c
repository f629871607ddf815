/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "core/model/layout.h"
#include "core/plan/plan_spec.h"

struct pp_program_spec pp_phase_spec(const struct pp_phase *phase, int rows)
{
    return (struct pp_program_spec){
        .seq = phase->seq,
        .slot_rows = rows,
        .training = phase->plan->training,
        .clip = phase->plan->clip,
        .split_backward = phase->plan->split_backward,
        .checkpoint_layers = phase->plan->training && phase->plan->checkpoint == PP_CHECKPOINT_LAYERS,
        .again = phase->plan->training ? pp_checkpoint_some(phase->plan->checkpoint) : 0,
        .activation_again = phase->plan->training && phase->plan->checkpoint == PP_CHECKPOINT_ACTIVATION};
}

/* Do layers of two stages that are alike make the same calls, for the same operands in the stage's memory? Dropout asks
 * for the number of the layer. */
static bool calls_alike(const struct pp_shape *shape, const struct pp_stage *a, const struct pp_stage *b)
{
    const int between = b->first_layer - a->first_layer, skip = shape->window_skip;
    return between == 0 || (shape->dropout == 0 && (skip == 0 || between % skip == 0));
}

/* The same of classes, but for their stages. */
static bool classes_alike(const struct pp_class *a, const struct pp_class *b)
{
    return a->kind == b->kind && a->rows == b->rows && a->part == b->part && a->parts == b->parts &&
           a->rounds == b->rounds && a->adds == b->adds;
}

/* The programs so far, of stages of one group (of one stage, where dropout tells all apart): chains of classes. */
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
    const struct pp_class *classes = p->phase->plan->classes;
    const struct pp_stage *stages = p->model->stages;
    const int stage = classes[c].stage;
    int *last = &p->last[p->model->shape.dropout > 0 ? stage : stages[stage].group], at = *last;
    while (at >= 0 && !(classes_alike(&classes[at], &classes[c]) &&
                        calls_alike(&p->model->shape, &stages[classes[at].stage], &stages[stage])))
        at = p->before[at];
    if (at >= 0) return at;
    p->before[c] = *last;
    return *last = c;
}

/* The class of the lender whose program is that of class c; -1: there is none. */
static int find_lent(const struct programs *p, int c)
{
    const struct pp_class *cls = &p->phase->plan->classes[c];
    const struct pp_stage *stage = &p->model->stages[cls->stage];
    const struct pp_phase *lending = p->lender ? p->lender->phase : NULL;
    for (int i = 0; lending && i < lending->plan->nclasses; i++) {
        const struct pp_class *other = &lending->plan->classes[i];
        const struct pp_stage *others = &p->lender->model->stages[other->stage];
        if (lending->same_as[i] == i && classes_alike(other, cls) && pp_stages_alike(&p->model->shape, others, stage) &&
            calls_alike(&p->model->shape, others, stage))
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

pp_status pp_phase_create(const struct pp_model *model, const struct pp_model_ops *ops, const struct pp_plan *plan,
                          int seq, const struct pp_lender *lender, struct pp_phase *out)
{
    struct programs programs = {.model = model, .ops = ops, .lender = lender, .phase = out};
    pp_status status;
    *out = (struct pp_phase){.plan = plan, .seq = seq};
    if (plan->slot_microbatches > 1) programs.slot_rows = pp_plan_most_slot_rows(plan);
    PP_TRY_DONE(PP_NEW(&out->same_as, plan->nclasses));
    PP_TRY_DONE(PP_NEW(&out->lent, plan->nclasses));
    PP_TRY_DONE(PP_NEW(&out->programs, plan->nclasses));
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
