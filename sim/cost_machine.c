/* SPDX-License-Identifier: Apache-2.0
 *
 * Durations of a named machine, by its roofline.
 */
#include <math.h>

#include "sim/costs.h"

int pp_norm_hops(const struct pp_plan *plan)
{
    int hops = 0;
    while (hops < 31 && 1 << hops < plan->ranks) hops++;
    return hops;
}

int64_t pp_class_bytes(const struct pp_job *job, const struct pp_class *cls)
{
    const struct pp_model *model = job->model;
    if (cls->kind == PP_XFER_F || cls->kind == PP_XFER_B)
        return (int64_t)cls->rows * job->config->tokens * model->shape.d_model *
               pp_element_bytes(model->shape.precision);
    return cls->kind == PP_REDUCE_GRAD ? model->stages[cls->stage].param_bytes : 0;
}

static int64_t roofline(const struct pp_machine *m, const struct pp_program *p, double bytes_per_ns)
{
    double ns = fmax(p->flops / m->flops_per_ns, p->bytes / bytes_per_ns) + p->ncalls * m->call_overhead_ns;
    return llround(fmin(ns, 1e18)); /* the engine refuses what is that long */
}

/* Two replicas move and add the gradients once; D of them 2 (D - 1) / D times as much. */
static int64_t reduction(const struct pp_machine *m, int64_t bytes, int replicas)
{
    return llround(m->reduce_latency_ns + (double)bytes * 2 * (replicas - 1) / replicas / m->reduce_bytes_per_ns);
}

static void set_class(const struct pp_job *job, const struct pp_machine *m, int cls, struct pp_class_cost *out)
{
    const struct pp_class *c = &job->train->classes[cls];
    const struct pp_program *program = &job->phase[PP_TRAIN].programs[cls];
    out->bytes = pp_class_bytes(job, c);
    if (pp_kinds[c->kind].computes) {
        out->ns = roofline(m, program, m->bytes_per_ns);
        out->loaded_ns = roofline(m, program, m->loaded_bytes_per_ns);
        return;
    }
    if (c->kind == PP_REDUCE_GRAD) out->ns = reduction(m, out->bytes, job->train->replicas);
    if (c->kind == PP_NORM_ALL)
        out->ns = llround(pp_norm_hops(job->train) * (m->link_latency_ns + 2 * m->link_overhead_ns));
    out->loaded_ns = out->ns;
}

pp_status pp_cost_from_machine(const struct pp_job *job, const struct pp_machine *m, struct pp_cost **out)
{
    PP_TRY(pp_cost_create(job->train, PP_COST_MACHINE, out));
    struct pp_cost *cost = *out;
    for (int c = 0; c < cost->nclasses; c++) set_class(job, m, c, &cost->classes[c]);
    cost->cores = m->cores;
    cost->link = (struct pp_link_cost){.latency_ns = llround(m->link_latency_ns),
                                       .send_overhead_ns = llround(m->link_overhead_ns),
                                       .recv_overhead_ns = llround(m->link_overhead_ns),
                                       .ns_per_byte = 1 / m->link_bytes_per_ns,
                                       .receiver_copies = m->receiver_copies,
                                       .posts_in_order = m->posts_in_order};
    return PP_OK;
}
