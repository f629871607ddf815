/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/terms.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/log.h"

static const char same_options[] = "start all processes with the same options",
                  same_file[] = "is the file the same on all hosts?", same_data[] = "is --data the same on all hosts?",
                  same_points[] = "is --points the same file on all hosts?",
                  same_checkpoint[] = "let all machines see the same file";

/* A folder of text sets the vocabulary. */
static const char *remedy_of(const struct pp_config *config, const struct pp_opt *option)
{
    return option->offset == PP_OPTION(model.vocab) && pp_config_reads_text(config) ? same_data : same_options;
}

void pp_terms_add_options(const struct pp_config *config, int tool, struct pp_terms *terms)
{
    char text[PP_OPTION_TEXT];
    for (int i = 0; i < pp_config_nrows; i++) {
        const struct pp_opt *row = &pp_config_rows[i];
        const char *name = row->name;
        if (!(row->tools & tool) || row->traits & PP_OPT_OWN) continue;
        if (row->traits & PP_OPT_PATH)
            pp_terms_add(terms, name, same_options, "%s", config->set[i] ? "a file" : "none");
        else
            pp_terms_add(terms, name, remedy_of(config, row), "%s", pp_options_text(row, config, text));
    }
}

static pp_status agree(struct pp_exec *exec, pp_status status, const struct pp_terms *terms)
{
    status = pp_agree(exec->transport, &exec->processes, status, terms);
    exec->agreed = status == PP_INPUT;
    return status;
}

pp_status pp_agree_on_status(struct pp_exec *exec, pp_status status) { return agree(exec, status, NULL); }

/* Adds the list of configurations, without the names of their schedules: these may be files, which have other names in
 * other processes. The plans that are made of them are compared later (pp_agree_on_job()). */
static void add_points(const struct pp_exec *exec, const struct pp_point *points, int n, struct pp_terms *terms)
{
    uint64_t hash = 0;
    for (int i = 0; i < n; i++) {
        struct pp_point point = points[i];
        char text[PP_POINT_TEXT];
        point.schedule = "";
        pp_point_text(&point, text);
        hash = pp_hash_bytes(hash, text, strlen(text) + 1);
    }
    pp_terms_add(terms, "list of configurations", exec->config.points ? same_points : same_options, "%d: %016" PRIx64,
                 n, hash);
}

pp_status pp_agree_on_options(struct pp_exec *exec, const struct pp_point *points, int n, pp_status status)
{
    struct pp_terms *terms;
    if (exec->processes.count == 1) return status;
    PP_TRY(PP_NEW(&terms, 1));
    if (status == PP_OK) {
        pp_terms_add(terms, "version of ppkit", "start the same program", "%s", PP_VERSION);
        pp_terms_add(terms, "device", "start all processes with the same --device", "%s", exec->backend->name);
        pp_terms_add(terms, "transport", "start all processes with the same --transport", "%s",
                     exec->carrier ? exec->carrier->name : exec->transport->name);
        pp_terms_add_options(&exec->config, PP_PPEXEC, terms);
        add_points(exec, points, n, terms);
        pp_terms_add(terms, "text", same_data, "%016" PRIx64, pp_data_hash(exec->data));
    }
    status = agree(exec, status, terms);
    free(terms);
    return status;
}

pp_status pp_compare_devices(struct pp_exec *exec)
{
    const int count = exec->processes.count;
    const size_t used = strlen(exec->device_text), left = sizeof exec->device_text - used;
    char(*texts)[sizeof exec->device_text];
    int other = 1;
    if (count == 1) return PP_OK;
    PP_TRY(PP_NEW(&texts, count));
    PP_TRY(exec->transport->gather(exec->device_text, sizeof *texts, texts)); /* may write after a failure, too */
    while (other < count && strcmp(texts[0], texts[other]) == 0) other++;
    if (other < count) {
        exec->mixed = true;
        pp_warn("process %d computes with \"%s\", process 0 with \"%s\": bits depend on which of them does what", other,
                texts[other], texts[0]);
        snprintf(exec->device_text + used, left, ", processes differ");
    }
    free(texts);
    return PP_OK;
}

static void add_plan(const struct pp_exec *exec, const char *name, const struct pp_plan *plan, struct pp_terms *terms)
{
    struct pp_schedule_found found;
    if (!plan) return;
    const bool file = exec->schedules->find(plan->schedule, &found) != PP_OK || found.ranks > 0;
    pp_terms_add(terms, name, file ? same_file : same_options, "schedule %s: %016" PRIx64, plan->schedule, plan->hash);
}

/* Layers of each stage. */
static pp_status add_stages(const struct pp_model *model, struct pp_terms *terms)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out) return pp_fail(PP_NOMEM, "there is not enough memory to compare stages");
    for (int s = 0; s < model->nstages; s++) fprintf(out, "%s%d", s ? "," : "", model->stages[s].layers);
    const bool whole = fclose(out) == 0;
    if (whole) pp_terms_add(terms, "split into stages", "give --split the layers of each stage", "%s", text);
    free(text);
    return whole ? PP_OK : pp_fail(PP_NOMEM, "there is not enough memory to compare stages");
}

/* From different steps a run would end in a hang or in wrong numbers, and from different weights in wrong ones. */
static pp_status add_checkpoint(const struct pp_restart *restart, struct pp_terms *terms)
{
    char text[48] = "none";
    uint64_t content = 0;
    if (restart->resumed) {
        PP_TRY(pp_prefix(pp_weights_content(restart->path, &content), "--resume"));
        snprintf(text, sizeof text, "after step %d", restart->start.step);
    }
    pp_terms_add(terms, "checkpoint to resume from", same_checkpoint, "%s", text);
    pp_terms_add(terms, "content of the checkpoint", same_checkpoint, "%016" PRIx64, content);
    return PP_OK;
}

static pp_status add_init(const struct pp_session *session, struct pp_terms *terms)
{
    const char *path = session->restart.resumed ? NULL : session->config->init;
    uint64_t content = 0;
    if (path) PP_TRY(pp_prefix(pp_weights_content(path, &content), "--init"));
    pp_terms_add(terms, "file of --init", same_file, "%016" PRIx64, content);
    return PP_OK;
}

/* Of a device that waits as long as another one was measured to take. */
static void add_times(const struct pp_job *job, struct pp_terms *terms)
{
    const struct pp_measured_times *measured = &job->times.measured;
    uint64_t hash = 0;
    for (int i = 0; measured->ns && i < measured->plan->nclasses; i++)
        hash = pp_hash_word(hash, (uint64_t)measured->ns[i]);
    pp_terms_add(terms, "profile", "let all machines see the same --db", "%016" PRIx64, hash);
}

pp_status pp_agree_on_job(struct pp_exec *exec, const struct pp_session *session, pp_status status)
{
    struct pp_terms *terms;
    if (exec->processes.count == 1) return status;
    PP_TRY(PP_NEW(&terms, 1));
    if (status == PP_OK) {
        const struct pp_job *job = session->job;
        status = add_stages(job->model, terms);
        add_plan(exec, "plan", job->train, terms);
        add_plan(exec, "plan of evaluation", job->eval, terms);
        pp_terms_add(terms, "accumulation key", same_options, "%s", job->accumulation_key);
        add_times(job, terms);
        if (status == PP_OK) status = add_checkpoint(&session->restart, terms);
        if (status == PP_OK) status = add_init(session, terms);
    }
    if (status == PP_OK || status == PP_USAGE) status = agree(exec, status, terms);
    free(terms);
    return status;
}
