/* SPDX-License-Identifier: Apache-2.0
 *
 * ppsim: predicts what a pipeline takes: time, bubble, memory.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/devices.h"
#include "core/ending.h"
#include "core/log.h"
#include "core/main.h"
#include "core/movers.h"
#include "core/split_time.h"
#include "exec/data.h"
#include "kernels/backend.h"
#include "kernels/model.h"
#include "schedules/csv.h"
#include "schedules/schedule.h"
#include "sim/draw.h"
#include "sim/output.h"
#include "sim/profiles.h"
#include "sim/remarks.h"
#include "sim/split.h"
#include "sim/store.h"

static const struct pp_program_info info = {
    .tool = PP_PPSIM,
    .name = "ppsim",
    .summary = "predict what one training step of a pipeline takes",
    .operands = "",
    .description =
        "Simulates the tasks of one training step in the order of a schedule, and prints time, bubble, "
        "memory and what the time is above the least possible. A list of schedules, tensor ranks, stages, virtual "
        "stages, chunks or checkpoint modes is a sweep; "
        "--workers tries all ways to divide so many devices into pipelines.\n\n"
        "Task times are those that ppprof measured, if the database (pp.db of this folder, or --db) or the "
        "text of --profile has them; else they are computed for a machine. With --machine nothing of a "
        "database is taken: a machine has profiles of its own, or its data sheet. --device auto predicts "
        "for the device that was measured last. With "
        "--times they are given directly, and no model limits the pipeline. "
        "The output says which.",
    .examples =
        "ppsim --schedule 1f1b --chunks 8\tone configuration\n"
        "ppsim --schedule gpipe,1f1b --chunks 1,2,4,8,16\ta sweep\n"
        "ppsim --schedule 1f1b --stages 8 --chunks 24 --times 18.5,18.1,9.3,0.6 --draw\tgiven times, and a picture\n"
        "ppsim --preset tutorial --machine h100 --checkpoint never,always\tdoes it fit?\n"
        "ppsim --preset tutorial --machine h100 --workers 8 --global-rows 64 --tensor 1,2,4 --schedule 1f1b,zbv "
        "--chunks 4,8,16\twhich pipelines on 8 devices?\n"
        "ppsim --profile theirs.tsv --chunks 4,8\tby what was measured elsewhere\n"};

struct session {
    struct pp_config config;
    struct pp_predictor predictor;
    char device[32], waits[32]; /* measured last: to be predicted, to be waited for */
    struct pp_db *db;
    struct pp_db *texts; /* in memory: what was measured, from text; NULL = none */
    pthread_mutex_t db_lock;
    struct pp_way *ways;
    int nways, npoints; /* all points of all ways */
    json_t *rows;
    FILE *drawings;
    char *drawn;
    size_t drawn_size;
    struct pp_remarks remarks;
};

/* What is being predicted. */
struct part {
    struct session *session;
    const struct pp_way *way;
    struct pp_predictor predictor; /* the session's, of the way's config */
    int before;                    /* points of earlier ways */
};

/* --times are those of a microbatch on a rank, whatever computes it; alone they know of no model or memory. */
static pp_status check_meaning(const struct session *s)
{
    const struct pp_config *config = &s->config;
    for (int i = 0; i < pp_config_nrows; i++) {
        const struct pp_opt *row = &pp_config_rows[i];
        const bool always = row->traits & PP_OPT_ALWAYS_TIMED;
        if (!(row->traits & PP_OPT_TIMED) || !pp_config_given(config, row->name)) continue;
        if (always ? config->times != NULL : pp_predict_only_times(config))
            return pp_fail(PP_USAGE, "--times says how long tasks take, and --%s would change nothing; leave it out%s",
                           row->name, always ? "" : ", or add --device delay");
    }
    return PP_OK;
}

static pp_status check_times(const struct session *s)
{
    const struct pp_config *config = &s->config;
    struct pp_given_times times; /* what is wrong with them is said once, not of each configuration */
    PP_TRY(check_meaning(s));
    if (pp_predict_only_times(config) && config->replicas > 1 && pp_config_given(config, "replicas"))
        return pp_fail(PP_USAGE, "--times predicts one replica; leave out --replicas %d, or add --device delay",
                       config->replicas);
    if (config->times && (config->machine || config->profile))
        return pp_fail(PP_USAGE, "--times and --%s both say how long tasks take; leave one out",
                       config->machine ? "machine" : "profile");
    if (config->machine && pp_device_kind(config->device)->waits)
        return pp_fail(PP_USAGE, "--machine computes how long tasks take, and --device delay waits as long as a "
                                 "profile of ppprof or --times says; leave --machine out");
    return pp_given_times_of(config, &times);
}

static pp_status check_usage(const struct session *s)
{
    const struct pp_config *config = &s->config;
    if (config->emit && s->npoints != 1)
        return pp_fail(PP_USAGE, "--emit: one configuration can be written, and the lists make %d; name one of each",
                       s->npoints);
    if (config->draw && config->format != PP_FORMAT_TABLE)
        return pp_fail(PP_USAGE, "--draw goes with --format table: the other formats are for programs");
    PP_TRY(check_times(s));
    if (config->emit && config->format != PP_FORMAT_TABLE)
        return pp_fail(PP_USAGE, "--emit writes a format of its own; leave out --format");
    if (config->emit && (config->price > 0 || config->train_tokens > 0))
        return pp_fail(PP_USAGE, "--%s is of predictions, and --emit prints none; leave one out",
                       config->price > 0 ? "price" : "train-tokens");
    return PP_OK;
}

/* With --machine, --profile or --times nothing of a database is wanted; --db is then only written to. */
static pp_status open_database(struct session *s)
{
    const struct pp_config *config = &s->config;
    bool measured = !config->times && !config->machine && !config->profile;
    if (config->profile)
        PP_TRY(pp_profiles_of_file(config->profile, &s->texts));
    else if (config->machine)
        PP_TRY(pp_profiles_of_machine(config->machine, &s->texts));
    if (config->db)
        PP_TRY(pp_db_open(config->db, PP_DB_WRITE, &s->db));
    else if (measured && access("pp.db", F_OK) == 0)
        PP_TRY(pp_db_open("pp.db", PP_DB_READ, &s->db));
    s->predictor.db = measured ? s->db : s->texts;
    return PP_OK;
}

/* A device that waits does so as long as what was measured last took, if no times are given. */
static pp_status choose_waits(struct session *s)
{
    if (s->config.times || !pp_device_kind(s->config.device)->waits) return PP_OK;
    const struct pp_config *config = &s->config;
    const char *path = config->profile ? config->profile : config->db ? config->db : s->predictor.db ? "pp.db" : NULL;
    PP_TRY(pp_waits_choose(&s->config, s->predictor.db, path, s->waits, sizeof s->waits));
    s->predictor.waits = s->waits;
    return PP_OK;
}

/* "auto": what was measured last, else the cpu. A machine of GPUs is one for cuda, if nothing else is said. */
static pp_status choose_device(struct session *s, const struct pp_backend **backend)
{
    struct pp_config *config = &s->config;
    PP_TRY(config->machine ? pp_machine_find(config->machine, &s->predictor.machine) : PP_OK);
    if (config->machine && s->predictor.machine.cores == 0 && !pp_config_given(config, "device"))
        config->device = pp_device_gpu()->name;
    if (strcmp(config->device, "auto") == 0) {
        if (s->predictor.db) PP_TRY(pp_db_newest_device(s->predictor.db, s->device, sizeof s->device));
        config->device = s->device[0] ? s->device : pp_device_kind(NULL)->name;
    }
    PP_TRY(choose_waits(s));
    return pp_backend_named(config->device, backend);
}

/* For what was not measured, a machine of the device's kind; one that was named is there already. */
static pp_status find_machine(struct session *s)
{
    if (s->config.machine) return PP_OK;
    return pp_machine_find(pp_device_kind(s->config.device)->machine, &s->predictor.machine);
}

/* A data sheet knows one kind of link, and work of one thread. */
static pp_status check_running(const struct session *s)
{
    const struct pp_config *config = &s->config;
    const char *waits = s->predictor.waits; /* the device that is waited for */
    const struct pp_device_kind *device = pp_device_kind(waits ? waits : config->device);
    const bool transport = strcmp(config->transport, "auto") != 0;
    if (transport && !pp_mover_find(config->transport, device->queue ? PP_OF_DEVICES : PP_OF_HOSTS))
        return pp_fail(PP_USAGE, "--transport %s moves no data of device %s; leave it out, or name another --device",
                       config->transport, config->device);
    const bool threads = config->threads > 1;
    bool measured = s->predictor.db || config->times;
    if (threads && s->predictor.db && !waits)
        PP_TRY(pp_db_has_threads(s->predictor.db, config->device, config->threads, &measured));
    if (!measured && (threads || (transport && config->machine)))
        return pp_fail(PP_USAGE,
                       "--%s: nothing was measured with that, and the data sheet of machine %s has one figure for "
                       "all; leave the option out",
                       threads ? "threads" : "transport", s->predictor.machine.name);
    return PP_OK;
}

static pp_status draw(struct session *s, const struct pp_prediction *prediction)
{
    const struct pp_plan *plan = prediction->job->train;
    bool colour;
    int width = pp_draw_width(&colour);
    const bool many = s->config.checkpoint.n > 1;
    char tensor[32] = "", experts[32] = "", context[32] = "", mode[PP_CHECKPOINT_TEXT];
    if (pp_plan_tensor(plan) > 1) snprintf(tensor, sizeof tensor, ", tensor %d", pp_plan_tensor(plan));
    if (plan->expert_parallel > 1) snprintf(experts, sizeof experts, ", expert parallel %d", plan->expert_parallel);
    if (plan->context > 1) snprintf(context, sizeof context, ", context parallel %d", plan->context);
    fprintf(s->drawings, "\n%s, %d rank%s x %d stage%s%s%s%s, %d microbatch%s%s%s\n", plan->schedule, plan->ranks,
            pp_plural(plan->ranks), plan->virtual_stages, pp_plural(plan->virtual_stages), tensor, experts, context,
            plan->microbatches, pp_plural_es(plan->microbatches), many ? ", checkpoint " : "",
            many ? pp_checkpoint_text(plan->checkpoint, mode) : "");
    return pp_draw(plan, &prediction->result.trace, width, colour, s->drawings);
}

static pp_status store(struct part *part, const struct pp_prediction *prediction)
{
    struct session *s = part->session;
    pthread_mutex_lock(&s->db_lock);
    pp_status status = pp_store_prediction(s->db, &part->predictor, prediction);
    pthread_mutex_unlock(&s->db_lock);
    return status;
}

/* In a sweep the impossible configurations are left out. */
static pp_status take_point(void *context, int i, struct pp_outcome *outcome)
{
    struct part *part = context;
    struct session *s = part->session;
    const struct pp_point *point = &part->way->points[i];
    pp_progress("predicting %d of %d", part->before + i + 1, s->npoints);
    if (outcome->status == PP_USAGE && s->npoints > 1)
        return pp_remarks_leave_out(&s->remarks, point, outcome->message);
    if (outcome->status != PP_OK) return pp_fail(outcome->status, "%s", outcome->message);
    pp_remarks_memory(&s->remarks, point, outcome->row);
    int failed = json_array_append_new(s->rows, outcome->row);
    outcome->row = NULL;
    if (failed) return pp_fail(PP_NOMEM, "cannot allocate room for the results");
    pp_remarks_source(&s->remarks, point, &outcome->origin);
    pp_remarks_checkpoint(&s->remarks, outcome->remark);
    if (s->config.draw) PP_TRY(draw(s, &outcome->prediction));
    return s->config.db ? store(part, &outcome->prediction) : PP_OK;
}

static pp_status predict_way(struct session *s, const struct pp_way *way, int before)
{
    struct pp_config config;
    struct part part = {.session = s, .way = way, .predictor = s->predictor, .before = before};
    const struct pp_points_call call = {.predictor = &part.predictor,
                                        .points = way->points,
                                        .npoints = way->npoints,
                                        .keep = s->config.draw || s->config.db,
                                        .take = take_point,
                                        .context = &part};
    if (way->impossible[0] && s->npoints == 1) return pp_fail(PP_USAGE, "%s", way->impossible);
    for (int i = 0; way->impossible[0] && i < way->npoints; i++)
        PP_TRY(pp_remarks_leave_out(&s->remarks, &way->points[i], way->impossible));
    if (way->impossible[0]) return PP_OK;
    pp_way_config(&s->config, way, &config);
    part.predictor.config = &config;
    return pp_predict_points(&call, 0);
}

static pp_status predict_all(struct session *s)
{
    PP_TRY(pp_remarks_begin(&s->remarks, s->ways, s->nways));
    for (int i = 0, before = 0; i < s->nways; before += s->ways[i++].npoints)
        PP_TRY(predict_way(s, &s->ways[i], before));
    pp_progress(NULL);
    pp_remarks_left_out(&s->remarks);
    if (json_array_size(s->rows) == 0)
        return pp_fail(PP_USAGE, "none of the %d configurations is possible", s->npoints);
    return s->config.workers.n > 0 ? pp_ways_order(s->rows, &s->config) : PP_OK;
}

static pp_status emit(const struct session *s)
{
    struct pp_job *job;
    PP_TRY(pp_predict_job(&s->predictor, &s->ways[0].points[0], &job));
    pp_status status = pp_plan_csv(job->train, stdout);
    pp_job_free(job);
    return status;
}

static void tell_machine(const struct session *s)
{
    size_t computed = 0, tasks = 0, i;
    json_t *row;
    json_array_foreach(s->rows, i, row)
    {
        const char *source = json_string_value(json_object_get(row, "cost_source"));
        computed += json_is_string(json_object_get(row, "machine"));
        tasks += strcmp(source, pp_cost_source_names[PP_COST_MACHINE]) == 0;
    }
    if (computed > 0) pp_machine_tell(&s->predictor.machine, tasks > 0);
    if (tasks > 0) pp_remarks_precision(&s->remarks);
}

static pp_status predict(struct session *s)
{
    s->rows = json_array();
    s->drawings = open_memstream(&s->drawn, &s->drawn_size);
    if (!s->rows || !s->drawings) return pp_fail(PP_NOMEM, "cannot allocate room for the results");
    PP_TRY(predict_all(s));
    pp_remarks_totals(&s->remarks);
    tell_machine(s);
    pp_remarks_schedule(&s->remarks);
    pp_remarks_fits(&s->remarks);
    if (fflush(s->drawings) != 0) return pp_fail(PP_NOMEM, "cannot allocate room for the drawings");
    PP_TRY(pp_rows_print(s->rows, s->config.format, stdout));
    fwrite(s->drawn, 1, s->drawn_size, stdout);
    return PP_OK;
}

/* A signal does not leave the rows in FILE-wal: the database is closed before the process ends. Whoever waits for the
 * lock then waits until that. */
static void close_database(void *session)
{
    struct session *s = session;
    pthread_mutex_lock(&s->db_lock);
    (void)pp_db_close(s->db);
}

static pp_status predict_with(struct session *s)
{
    PP_TRY(pp_ending_begin(close_database, s));
    pp_status status = predict(s);
    pthread_mutex_lock(&s->db_lock);
    pp_status closed = pp_db_close(s->db);
    s->db = NULL;
    pthread_mutex_unlock(&s->db_lock);
    pp_status ended = pp_ending_end();
    return status != PP_OK ? status : closed != PP_OK ? closed : ended;
}

static pp_status answer(struct session *s)
{
    struct pp_config *config = &s->config;
    struct pp_predictor *p = &s->predictor;
    const struct pp_backend *backend;
    *p = (struct pp_predictor){
        .config = config, .schedules = &pp_schedules, .ops = &pp_model_ops, .db_lock = &s->db_lock};
    s->remarks.predictor = p;
    PP_TRY(pp_ways_prepare(config));
    PP_TRY(pp_data_survey(config, &p->data_bytes));
    PP_TRY(pp_ways(config, &pp_schedules, &s->ways, &s->nways));
    for (int i = 0; i < s->nways; i++) s->npoints += s->ways[i].npoints;
    PP_TRY(check_usage(s));
    PP_TRY(open_database(s));
    PP_TRY(choose_device(s, &backend));
    PP_TRY(find_machine(s));
    PP_TRY(check_running(s));
    PP_TRY(pp_split_find(config, p, backend->name, s->texts));
    return config->emit ? emit(s) : s->db ? predict_with(s) : predict(s);
}

static void release(struct session *s)
{
    if (s->drawings) fclose(s->drawings);
    free(s->drawn);
    pp_ways_free(s->ways, s->nways);
    pp_remarks_free(&s->remarks);
    pp_split_time_free(&s->config);
    json_decref(s->rows);
}

static pp_status run(void *session, const char *operand)
{
    struct session *s = session;
    (void)operand;
    pp_status status = answer(s);
    (void)pp_db_close(s->texts); /* in memory */
    pp_status closed = pp_db_close(s->db);
    release(s);
    return status == PP_OK ? closed : status;
}

int main(int argc, char **argv)
{
    static struct session session = {.db_lock = PTHREAD_MUTEX_INITIALIZER};
    const struct pp_listing listings[] = {{"schedules", pp_schedules.list}, {"presets", pp_config_list_presets},
                                          {"machines", pp_machine_list},    {"profiles of machines", pp_profiles_list},
                                          {"devices", pp_backend_list},     {0}};
    const struct pp_main program = {
        .info = &info, .listings = listings, .config = &session.config, .run = run, .session = &session};
    return pp_main(&program, argc, argv);
}
