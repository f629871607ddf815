/* SPDX-License-Identifier: Apache-2.0
 *
 * ppsim: predicts time, bubble and memory of a pipeline.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/options/devices.h"
#include "core/options/ending.h"
#include "core/options/main.h"
#include "core/options/times_file.h"
#include "exec/data.h"
#include "kernels/backend.h"
#include "kernels/model.h"
#include "schedules/csv.h"
#include "schedules/schedule.h"
#include "sim/draw.h"
#include "sim/listed.h"
#include "sim/output.h"
#include "sim/profiles.h"
#include "sim/race.h"
#include "sim/ranking.h"
#include "sim/remarks.h"
#include "sim/sources.h"
#include "sim/store.h"
#include "sim/targets.h"
#include "sim/times_use.h"

static const struct pp_program_info info = {
    .tool = PP_PPSIM,
    .name = "ppsim",
    .summary = "predict what one training step of a pipeline takes",
    .operands = "",
    .description =
        "Simulates the tasks of one training step in the order of a schedule, and prints time, bubble, "
        "memory and what the time is above the least possible. Lists, in options that end in ,... and in "
        "--checkpoint, are a sweep over all combinations; "
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
        "ppsim --preset llama-3-8b --precision bf16 --machine a100,h100,h200 --price 1.5,2.5,3 --workers 8,16 "
        "--global-rows 128 --micro-batch-size 1 --schedule 1f1b,zbv --tensor 1,2 --zero 1 --top 1\twhich GPUs?\n"
        "ppsim --profile theirs.tsv --chunks 4,8\tby what was measured elsewhere\n"};

struct session {
    struct pp_config config;
    struct pp_blocks *blocks;   /* of config */
    struct pp_predictor common; /* what all targets share */
    struct pp_target *targets;
    int ntargets;
    struct pp_db *db;
    bool db_new; /* the file of --db was not there before */
    pthread_mutex_t db_lock;
    struct pp_way *ways; /* the same for each target */
    int nways;
    int64_t npoints; /* number of points, of all ways and targets */
    int64_t ntaken;  /* of these, so many outcomes were taken */
    struct pp_listed listed;
    struct pp_row *rows; /* [listed.npoints] of each point; none where it is impossible, or left out */
    int64_t nrows;       /* > 0: these are all, without gaps */
    bool measured_all;   /* a configuration, shown or not, has measured times alone */
    FILE *drawings;
    char *drawn;
    size_t drawn_size;
    struct pp_remarks *remarks; /* one for each target */
    struct pp_remarks_all remarks_all;
};

static pp_status check_usage(const struct session *s)
{
    const struct pp_config *config = &s->config;
    if (config->emit && s->npoints != 1)
        return pp_fail(PP_USAGE, "--emit: one configuration can be written, and the lists make %lld; name one of each",
                       (long long)s->npoints);
    if (config->draw && config->format != PP_FORMAT_TABLE)
        return pp_fail(PP_USAGE, "--draw goes with --format table: the other formats are for programs");
    PP_TRY(pp_check_times(config));
    PP_TRY(pp_targets_check(config));
    if (config->emit && (config->draw || config->format != PP_FORMAT_TABLE))
        return pp_fail(PP_USAGE, "--emit writes a format of its own; leave out --%s", config->draw ? "draw" : "format");
    if (config->emit && (config->price.n > 0 || config->train_tokens > 0))
        return pp_fail(PP_USAGE, "--%s is of predictions, and --emit prints none; leave one out",
                       config->price.n > 0 ? "price" : "train-tokens");
    return PP_OK;
}

/* Opens the database to read from. With --machine, --profile or --times none is read; --db is then only written to. */
static pp_status open_database(struct session *s)
{
    const struct pp_config *config = &s->config;
    const bool measured = !config->times && !pp_config_machine(config) && !config->profile;
    s->db_new = config->db && access(config->db, F_OK) != 0;
    if (config->db)
        PP_TRY(pp_db_open(config->db, PP_DB_WRITE, &s->db));
    else if (measured && access(PP_USUAL_DB, F_OK) == 0)
        PP_TRY(pp_db_open(PP_USUAL_DB, PP_DB_READ, &s->db));
    if (s->db) pp_db_share(s->db, &s->db_lock);
    s->common.db = measured ? s->db : NULL;
    return PP_OK;
}

/* Without a profile, the only machine must have the precision, or nothing can be predicted. */
static pp_status check_rates(const struct session *s)
{
    const struct pp_predictor *p = &s->targets[0].predictor;
    const bool sheet = !p->db && !p->waits && !s->config.times && !s->config.emit;
    return sheet && s->ntargets == 1 ? pp_machine_check_rates(&p->machine, p->config) : PP_OK;
}

static pp_status find_targets(struct session *s)
{
    const struct pp_backend *backend;
    PP_TRY(pp_targets_find(&s->common, &s->targets, &s->ntargets));
    PP_TRY(PP_NEW(&s->remarks, s->ntargets));
    for (int i = 0; i < s->ntargets; i++) {
        const struct pp_predictor *p = &s->targets[i].predictor;
        PP_TRY(pp_backend_named(p->config->device, &backend)); /* this build must have the device */
        s->remarks[i] = (struct pp_remarks){
            .predictor = p, .machine = s->ntargets > 1 ? p->machine.name : NULL, .db_new = s->db_new};
    }
    return check_rates(s);
}

static pp_status draw(struct session *s, const char *machine, const struct pp_prediction *prediction)
{
    bool colour;
    const int width = pp_draw_width(&colour);
    pp_draw_title(prediction, machine, s->drawings);
    return pp_draw(prediction->job->train, &prediction->result.trace, width, colour, s->drawings);
}

static pp_status store(struct session *s, const struct pp_predictor *predictor, const struct pp_prediction *prediction)
{
    pthread_mutex_lock(&s->db_lock);
    pp_status status = pp_store_prediction(s->db, predictor, prediction);
    pthread_mutex_unlock(&s->db_lock);
    return status;
}

/* Takes the outcome of a point. In a sweep impossible points are left out. */
static pp_status take_point(void *session, int64_t i, struct pp_outcome *outcome)
{
    struct session *s = session;
    struct pp_remarks *remarks = &s->remarks[i / s->listed.each];
    const struct pp_listed_point *at = &s->listed.points[i];
    s->ntaken++;
    if (outcome->status == PP_USAGE && s->npoints > 1)
        return pp_remarks_all_leave_out(&s->remarks_all, at->point, remarks->machine, outcome->message);
    if (outcome->status != PP_OK) return pp_fail(outcome->status, "%s", outcome->message);
    pp_progress("predicting %lld of %lld", (long long)s->ntaken, (long long)s->npoints);
    pp_remarks_memory(remarks, at->point, &outcome->row);
    if (remarks->machine) PP_TRY(pp_row_set_target(&outcome->row, (int)(i / s->listed.each), remarks->machine));
    remarks->measured += pp_cost_measured(&outcome->row.notes->origin);
    s->measured_all |= pp_cost_measured_all(&outcome->row.notes->origin);
    s->rows[i] = outcome->row;
    outcome->row = (struct pp_row){0};
    if (s->config.draw) PP_TRY(draw(s, remarks->machine, &outcome->prediction));
    return s->config.db ? store(s, &outcome->predictor, &outcome->prediction) : PP_OK;
}

/* A race knows of each point whether it has measured times, and predicts only some. */
static void look_at(void *session, int64_t i, const struct pp_least *least)
{
    struct session *s = session;
    s->remarks[i / s->listed.each].measured += least->measured;
    s->measured_all |= least->all;
}

/* For whom points are left out: machine NULL: of all machines, or of the only one. */
struct leaving {
    struct session *session;
    const char *machine;
};

static pp_status leave_pointless(void *context, const struct pp_point *point, const char *why)
{
    const struct leaving *leaving = context;
    return pp_remarks_all_leave_out(&leaving->session->remarks_all, point, leaving->machine, why);
}

/* Where not all are shown, nobody is told. */
static pp_status leave_no_better(void *context, const struct pp_point *point, const char *why)
{
    const struct leaving *leaving = context;
    return leaving->session->config.top > 0 ? PP_OK : leave_pointless(context, point, why);
}

/* Leaves rows that are there, and say something new. */
static pp_status collect_rows(struct session *s)
{
    struct pp_row *of_way = s->rows;
    for (int64_t i = 0; i < (int64_t)s->ntargets * s->nways && s->config.workers.n > 0; i++) {
        const struct pp_way *way = &s->ways[i % s->nways];
        struct leaving leaving = {s, s->remarks[i / s->nways].machine};
        PP_TRY(pp_rank_remove_no_better(way, of_way, &pp_schedules, leave_no_better, &leaving));
        of_way += way->npoints;
    }
    for (int64_t i = 0; i < s->listed.npoints; i++) {
        const struct pp_row row = s->rows[i];
        s->rows[i] = (struct pp_row){0};
        if (row.json) s->rows[s->nrows++] = row;
    }
    return s->nrows > 0 && s->config.workers.n > 0 ? pp_rank(s->rows, &s->nrows, &s->config) : PP_OK;
}

/* Remarks about the rows that are shown. */
static void tell_rows(struct session *s)
{
    for (int64_t i = 0; i < s->nrows; i++) {
        const struct pp_row_notes *notes = s->rows[i].notes;
        pp_remarks_source(&s->remarks[s->rows[i].target], &notes->point, &notes->origin);
        for (int kind = 0; kind < PP_POINT_REMARKS; kind++)
            pp_remarks_all_take(&s->remarks_all, kind, notes->remark[kind]);
    }
}

static pp_status predict_all(struct session *s)
{
    if (s->npoints > 1) pp_alloc_keep(); /* each point takes megabytes and frees them */
    PP_TRY(pp_remarks_begin(&s->remarks[0], s->ways, s->nways));
    PP_TRY(pp_listed_create(s->targets, s->ntargets, s->ways, s->nways, &s->listed));
    PP_TRY(PP_NEW(&s->rows, s->listed.npoints));
    const struct pp_points_call call = {.points = s->listed.points,
                                        .npoints = s->listed.npoints,
                                        .keep = s->config.draw || s->config.db,
                                        .take = take_point,
                                        .look_at = look_at,
                                        .context = s};
    PP_TRY(pp_race_suits(&call, &s->config) ? pp_race(&call, &pp_schedules, s->config.top)
                                            : pp_predict_points(&call, 0));
    pp_progress(NULL);
    PP_TRY(collect_rows(s));
    tell_rows(s);
    pp_remarks_all_left_out(&s->remarks_all, &s->config, s->config.usual && s->nrows > 0);
    if (s->nrows == 0) return pp_fail(PP_USAGE, "none of the %lld configurations is possible", (long long)s->npoints);
    return PP_OK;
}

static pp_status emit(const struct session *s)
{
    struct pp_job *job;
    PP_TRY(pp_predict_job(&s->targets[0].predictor, &s->ways[0].points[0], &job));
    pp_status status = pp_plan_csv(job->train, stdout);
    pp_job_free(job);
    return status;
}

static void tell_machines(struct session *s)
{
    int64_t tasks = 0;
    const struct pp_machine *sheet = NULL;
    for (int t = 0; t < s->ntargets; t++) {
        const struct pp_machine *machine = &s->targets[t].predictor.machine;
        const struct pp_sources shown = pp_sources_of(s->rows, s->nrows, t);
        if (shown.any > 0) pp_machine_tell(machine);
        tasks += shown.tasks;
        s->remarks[t].computed = shown.tasks > 0;
        if (!sheet && shown.tasks > 0 && machine->cores == 0) sheet = machine;
    }
    if (sheet) pp_machine_tell_sheet(sheet, &s->config);
    pp_sources_warn(s->nrows, tasks, s->measured_all);
    for (int t = 0; t < s->ntargets; t++) pp_remarks_precision(&s->remarks[t]);
    pp_remarks_machine(&s->remarks[0]);
}

/* How to predict or draw the first way alone: a line that a shell takes, however long it is. */
static void tell_first(const struct session *s)
{
    const struct pp_row *first = &s->rows[0];
    fflush(stdout);
    fprintf(stderr, "the first%s: ppsim %s\n", first->too_large ? ", which does not fit" : "",
            json_string_value(json_object_get(first->json, "options")));
}

static pp_status predict(struct session *s)
{
    s->drawings = open_memstream(&s->drawn, &s->drawn_size);
    if (!s->drawings) return pp_fail(PP_NOMEM, "cannot allocate room for the results");
    PP_TRY(predict_all(s));
    for (int t = 0; t < s->ntargets; t++) pp_remarks_totals(&s->remarks[t]);
    pp_remarks_all_totals(&s->remarks_all);
    tell_machines(s);
    pp_remarks_schedule(&s->remarks[0]);
    for (int t = 0; t < s->ntargets; t++) pp_remarks_fits(&s->remarks[t]);
    if (fflush(s->drawings) != 0) return pp_fail(PP_NOMEM, "cannot allocate room for the drawings");
    PP_TRY(pp_rows_print(s->rows, s->nrows, &s->config, stdout));
    fwrite(s->drawn, 1, s->drawn_size, stdout);
    if (s->config.workers.n > 0) tell_first(s);
    return PP_OK;
}

/* After a signal: closes the database before the process ends, so that no rows stay in FILE-wal. It keeps the lock, so
 * other threads wait until then. */
static void close_database(void *session)
{
    struct session *s = session;
    pthread_mutex_lock(&s->db_lock);
    (void)pp_db_end(s->db);
}

static pp_status predict_with(struct session *s)
{
    struct pp_failure failure;
    PP_TRY(pp_ending_begin(close_database, s));
    pp_status status = predict(s);
    pthread_mutex_lock(&s->db_lock);
    status = pp_keep(&failure, pp_db_close_after(s->db, status));
    s->db = NULL;
    pthread_mutex_unlock(&s->db_lock);
    const pp_status ended = pp_ending_end();
    return status == PP_OK ? ended : pp_fail_again(&failure);
}

static pp_status find_ways(struct session *s)
{
    struct leaving leaving = {.session = s};
    PP_TRY(pp_ways(&s->config, &pp_schedules, &s->ways, &s->nways));
    for (int i = 0; i < s->nways; i++) {
        PP_TRY(pp_way_remove_pointless(&s->ways[i], &pp_schedules, leave_pointless, &leaving));
        s->npoints += s->ways[i].npoints;
    }
    s->npoints *= pp_targets_count(&s->config);
    return PP_OK;
}

static pp_status answer(struct session *s)
{
    struct pp_config *config = &s->config;
    s->common = (struct pp_predictor){
        .config = config, .schedules = &pp_schedules, .ops = &pp_model_ops, .db_lock = &s->db_lock};
    PP_TRY(pp_ways_prepare(config));
    PP_TRY(pp_data_survey(config, &s->common.data_bytes));
    PP_TRY(find_ways(s));
    if (pp_predict_only_times(config) && pp_times_file(config->times) > 0) {
        PP_TRY(pp_blocks_read(config->times, &s->blocks));
        config->blocks = s->blocks;
    }
    PP_TRY(check_usage(s));
    if (config->db && !config->emit) pp_remarks_all_database(config->db, s->ways, s->nways, pp_targets_count(config));
    PP_TRY(open_database(s));
    PP_TRY(find_targets(s));
    return config->emit ? emit(s) : s->db ? predict_with(s) : predict(s);
}

static void release(struct session *s)
{
    if (s->drawings) fclose(s->drawings);
    free(s->drawn);
    for (int64_t i = 0; s->rows && i < (s->nrows > 0 ? s->nrows : s->listed.npoints); i++) pp_row_free(&s->rows[i]);
    free(s->rows);
    pp_listed_free(&s->listed);
    pp_ways_free(s->ways, s->nways);
    pp_remarks_all_free(&s->remarks_all);
    free(s->remarks);
    pp_targets_free(s->targets, s->ntargets);
    pp_blocks_free(s->blocks);
}

static pp_status run(void *session, const char *operand)
{
    struct session *s = session;
    (void)operand;
    pp_status status = answer(s);
    status = pp_db_close_after(s->db, status);
    release(s);
    return status;
}

int main(int argc, char **argv)
{
    static struct session session = {.db_lock = PTHREAD_MUTEX_INITIALIZER};
    const struct pp_listing listings[] = {
        {"schedules", NULL, pp_schedules.list}, {"presets", NULL, pp_config_list_presets},
        {"machines", NULL, pp_machine_list},    {"profiles", "profiles of machines", pp_profiles_list},
        {"devices", NULL, pp_backend_list},     {0}};
    const struct pp_main program = {
        .info = &info, .listings = listings, .config = &session.config, .run = run, .session = &session};
    return pp_main(&program, argc, argv);
}
