/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks for the durations of all computations of a job, each distinct one once in a sweep.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/database/db_query.h"
#include "core/plan/longest.h"
#include "sim/cost_search.h"

/* The time under one load (pp_cost_from_profile()); *ns = 0 if there is none. *source becomes less certain, if the
 * source of this time is. */
static pp_status look_up(const struct pp_search *s, const struct pp_wanted *wanted, int load, int64_t *ns, int *source)
{
    int from;
    PP_TRY(pp_search_measured(s, wanted, load, ns, &from));
    if (*ns == 0) {
        from = PP_COST_SCALED;
        PP_TRY(pp_search_scaled(s, wanted, load, ns));
    }
    if (*ns > 0 && from > *source) *source = from;
    return PP_OK;
}

static void count(struct pp_cost_origin *origin, int source, const char *signature)
{
    origin->classes++;
    if (origin->from[source]++ == 0) snprintf(origin->first[source], sizeof origin->first[source], "%s", signature);
}

/* GPUs: sets the host's time to issue the task, if it was measured. */
static pp_status set_issue(const struct pp_search *s, const char *signature, struct pp_class_cost *class)
{
    const struct pp_db_setting setting = pp_search_setting(s);
    bool found;
    int64_t ns;
    if (!s->gpu) return PP_OK;
    PP_TRY(pp_db_find_issue(s->db, &setting, signature, s->load, &ns, &found));
    if (!found) return PP_OK;
    PP_TRY(pp_check_figure((double)ns, 0, PP_LONGEST_MEASURED_NS, "ns of issuing \"%s\" are", signature));
    class->host_ns = ns + llround(s->task_host_ns);
    return PP_OK;
}

/* Times of a task that were found, alone and beside others; loaded 0: there are none. */
struct found_times {
    int64_t alone, loaded;
    int source;
};

static pp_status find_times(const struct pp_search *s, const struct pp_wanted *wanted, struct found_times *out)
{
    *out = (struct found_times){.source = PP_COST_PROFILE};
    PP_TRY(look_up(s, wanted, 1, &out->alone, &out->source));
    return out->alone > 0 ? look_up(s, wanted, s->load, &out->loaded, &out->source) : PP_OK;
}

/* Finds the times once for a whole sweep. The signature names the work, and the rest what kernels and relatives of a
 * task depend on besides. */
static pp_status recall_times(const struct pp_search *s, const struct pp_wanted *wanted, struct found_times *out)
{
    const struct pp_shape *shape = &s->job->model->shape;
    char question[3 * PP_SIGNATURE_BYTES];
    snprintf(question, sizeof question, "times %s %s %d/%d load %d, %s, T%d/%d N%d/%d C%d D%d/%d zero %d, %s",
             s->machine->name, s->device, s->threads, s->sharers, s->load, s->context, pp_shape_tensor(shape),
             shape->sum_pieces, pp_shape_expert_parallel(shape), shape->exchange_pieces, s->job->train->context,
             shape->replicas, shape->shard_groups, s->job->point.zero, wanted->program->signature);
    pp_db_lock(s->db);
    const bool known = pp_db_knows(s->db, question, out, sizeof *out);
    pp_db_unlock(s->db);
    if (known) return PP_OK;
    PP_TRY(find_times(s, wanted, out));
    pp_db_lock(s->db);
    pp_db_keep(s->db, question, out, sizeof *out);
    pp_db_unlock(s->db);
    return PP_OK;
}

static pp_status search_class(const struct pp_search *s, const struct pp_wanted *wanted, struct pp_class_cost *out)
{
    struct found_times times;
    PP_TRY(recall_times(s, wanted, &times));
    if (times.loaded == 0) return PP_OK;
    out->ns = times.alone + out->sums_ns; /* profiles do not have collectives */
    out->loaded_ns = times.loaded + out->sums_ns;
    out->source = times.source;
    return set_issue(s, wanted->program->signature, out);
}

static pp_status search(const struct pp_search *s, struct pp_cost *cost, struct pp_cost_origin *origin)
{
    for (int c = 0; c < cost->nclasses; c++) {
        const struct pp_class *class = &s->job->train->classes[c];
        if (!pp_kinds[class->kind].computes) continue;
        const struct pp_wanted wanted = {class, &s->job->phase[PP_TRAIN].programs[c]};
        if (wanted.program->ncalls == 0) continue; /* such as R of an embedding: it takes no time */
        PP_TRY(search_class(s, &wanted, &cost->classes[c]));
        count(origin, cost->classes[c].source, wanted.program->signature);
    }
    return PP_OK;
}

pp_status pp_search_computations(const struct pp_search *s, struct pp_cost *cost, struct pp_cost_origin *origin)
{
    struct pp_search with_memory = *s;
    PP_TRY(PP_NEW(&with_memory.memory, 1));
    pp_status status = pp_search_begin_sheet(&with_memory);
    if (status == PP_OK) status = search(&with_memory, cost, origin);
    for (int i = 0; i <= PP_SEARCH_SHARERS; i++) free(with_memory.memory->sheet[i]);
    free(with_memory.memory);
    return status;
}
