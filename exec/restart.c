/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/restart.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/new_file.h"
#include "core/options/file_names.h"
#include "exec/restart_inside.h"

/* --- where the run is --- */

/* Each number of the state as a note: exact, in hexadecimal. */
struct number {
    const char *name;
    double value;
};

enum { STEP, EPOCH, BATCH, INTERVAL_STEPS, LEARNING_RATE, BEST_LOSS, EPOCH_LOSS, INTERVAL_LOSS, NUMBERS };

static bool is_whole(int number) { return number <= INTERVAL_STEPS; }
static bool is_new(int number) { return number == EPOCH || number == BATCH; } /* not in the first version */

static void numbers_of(const struct pp_restart_state *state, struct number out[NUMBERS])
{
    out[STEP] = (struct number){"step", state->step};
    out[EPOCH] = (struct number){"epoch", state->epoch};
    out[BATCH] = (struct number){"batches of the epoch", state->batch};
    out[LEARNING_RATE] = (struct number){"learning rate", state->learning_rate};
    out[BEST_LOSS] = (struct number){"best validation loss", state->best_loss};
    out[EPOCH_LOSS] = (struct number){"sum of losses of the epoch", state->totals.epoch_loss};
    out[INTERVAL_LOSS] = (struct number){"sum of losses since the last log line", state->totals.interval_loss};
    out[INTERVAL_STEPS] = (struct number){"steps since the last log line", state->totals.interval_steps};
}

static void add_state(const struct pp_restart_state *state, struct pp_notes *notes)
{
    struct number numbers[NUMBERS];
    char text[40];
    numbers_of(state, numbers);
    for (int i = 0; i < NUMBERS; i++) {
        snprintf(text, sizeof text, is_whole(i) ? "%.0f" : "%a", numbers[i].value);
        pp_notes_add(notes, numbers[i].name, text);
    }
}

static bool is_count(double value) { return value >= 0 && value <= INT32_MAX && value == floor(value); }

/* Each epoch has a step, and each batch is one. (Sums of losses need not be finite.) */
static bool is_sound(int number, const struct number all[NUMBERS])
{
    const double value = all[number].value;
    if (is_new(number)) return is_count(value) && value <= all[STEP].value;
    return is_whole(number) ? is_count(value) : number > BEST_LOSS || !isnan(value);
}

static pp_status parse_state(const char *path, const struct pp_notes *notes, struct pp_restart_state *out)
{
    struct number numbers[NUMBERS];
    *out = (struct pp_restart_state){.epoch = -1, .batch = -1};
    numbers_of(out, numbers);
    for (int i = 0; i < NUMBERS; i++) {
        const char *text = pp_notes_find(notes, numbers[i].name);
        char *end = NULL;
        if (is_new(i) && pp_restart_is_old(notes)) continue;
        if (text) numbers[i].value = strtod(text, &end);
        if (!text || end == text || *end || !is_sound(i, numbers))
            return pp_fail(PP_INPUT, "%s is damaged: its '%s' is %s", path, numbers[i].name, text ? text : "missing");
    }
    *out = (struct pp_restart_state){
        .step = (int)numbers[STEP].value,
        .epoch = (int)numbers[EPOCH].value,
        .batch = (int)numbers[BATCH].value,
        .learning_rate = numbers[LEARNING_RATE].value,
        .best_loss = numbers[BEST_LOSS].value,
        .totals = {numbers[EPOCH_LOSS].value, numbers[INTERVAL_LOSS].value, (int)numbers[INTERVAL_STEPS].value}};
    return PP_OK;
}

/* What ends of epochs have made of --lr is kept, also where that is another one now. */
static void follow_rate(const struct pp_notes *mine, const struct pp_notes *theirs, struct pp_restart_state *state)
{
    const char *is = pp_notes_find(mine, pp_note_rate), *was = pp_notes_find(theirs, pp_note_rate);
    if (!is || !was || strcmp(is, was) == 0) return;
    const double before = strtod(was, NULL), now = strtod(is, NULL);
    state->learning_rate = before > 0 ? now * (state->learning_rate / before) : now;
}

/* --- the tensors --- */

static bool has_best(const struct pp_restart_state *state) { return state->best_loss < INFINITY; }

/* The model as the file has it: with what the optimizer keeps, and with the best weights, as further tensors. Its
 * tensors belong to the caller. */
static pp_status model_of_file(const struct pp_model *model, bool best, struct pp_model *out)
{
    const struct pp_optimizer_info *optimizer = &pp_optimizers[model->shape.optimizer];
    const int n = model->ntensors, parts = pp_parameters_parts(model), copies = parts + best;
    *out = (struct pp_model){.ntensors = copies * n, .parameters = copies * model->parameters};
    PP_TRY(PP_NEW(&out->tensors, out->ntensors));
    for (int i = 0; i < out->ntensors; i++) {
        const char *prefix = i / n == parts ? "best" : i >= n ? optimizer->state_names[i / n - 1] : NULL;
        struct pp_tensor *t = &out->tensors[i];
        *t = model->tensors[i % n];
        if (prefix) snprintf(t->name, sizeof t->name, "%s.%.50s", prefix, model->tensors[i % n].name);
    }
    return PP_OK;
}

static pp_status open_tensors(const char *path, const struct pp_model *model, const struct pp_restart_state *state,
                              struct pp_weights_reader **out)
{
    struct pp_model file;
    PP_TRY(model_of_file(model, has_best(state), &file));
    const pp_status status = pp_weights_open(path, &file, out);
    free(file.tensors);
    return status;
}

/* --- the file --- */

/* Opens the tensors for a moment; what they hold is checked where it is read. */
static pp_status check_tensors(const char *path, const struct pp_notes *notes, const struct pp_model *model,
                               const struct pp_restart_state *state)
{
    struct pp_weights_reader *reader;
    PP_TRY(open_tensors(path, model, state, &reader));
    const bool sums = pp_weights_has_sums(reader);
    pp_weights_close(reader);
    if (sums) return PP_OK;
    if (!pp_restart_is_old(notes)) return pp_fail(PP_INPUT, "%s is damaged: it has no checksums", path);
    pp_warn("%s was written by a version of ppkit without checksums: damage of its tensors would not be seen", path);
    return PP_OK;
}

static pp_status check_file(const char *path, const struct pp_notes *identity, const struct pp_model *model,
                            bool changed, struct pp_notes *notes, struct pp_restart_state *out)
{
    struct pp_restart_differences differences;
    PP_TRY(pp_weights_notes(path, notes));
    PP_TRY(pp_restart_make_canonical(notes));
    PP_TRY(pp_restart_compare(path, identity, notes, &differences));
    PP_TRY(parse_state(path, notes, out));
    PP_TRY(pp_restart_judge(path, &differences, changed, notes, out));
    PP_TRY(check_tensors(path, notes, model, out));
    follow_rate(identity, notes, out);
    const char *mine = pp_notes_find(identity, pp_note_bits), *theirs = pp_notes_find(notes, pp_note_bits);
    if (mine && strcmp(mine, theirs))
        pp_warn("%s was computed on \"%s\", and this is \"%s\": the run goes on, but not with the bits that it would "
                "have had there",
                path, theirs, mine);
    return PP_OK;
}

pp_status pp_restart_read(const char *path, const struct pp_notes *identity, const struct pp_model *model, bool changed,
                          struct pp_restart_state *out, bool *found)
{
    struct pp_notes *notes;
    *found = access(path, F_OK) == 0 || errno != ENOENT;
    if (!*found) return PP_OK;
    PP_TRY(PP_NEW(&notes, 1));
    const pp_status status = check_file(path, identity, model, changed, notes, out);
    free(notes);
    return pp_prefix(status, "--resume");
}

pp_status pp_restart_create(const char *path, const struct pp_notes *identity, const struct pp_model *model,
                            const struct pp_restart_state *state, struct pp_weights_writer **out)
{
    struct pp_notes *notes;
    struct pp_model file = {0};
    *out = NULL;
    PP_TRY(PP_NEW(&notes, 1));
    *notes = *identity;
    pp_notes_add(notes, PP_NOTE_CHECKPOINT, PP_RESTART_VERSION);
    add_state(state, notes);
    pp_status status = model_of_file(model, has_best(state), &file);
    if (status == PP_OK) status = pp_weights_create(path, &file, notes, out);
    free(file.tensors);
    free(notes);
    return status;
}

/* --- of a run --- */

/* Of the file itself, whatever links lead to it. (What is no file is told where the file is tried.) */
static pp_status take_lock(struct pp_restart *restart)
{
    struct pp_new_file file;
    const pp_status chosen = pp_new_file_choose("--save", restart->path, true, &file);
    return pp_file_lock_take("--save", chosen == PP_OK ? file.path : restart->path, &restart->lock);
}

pp_status pp_restart_open(const struct pp_config *config, const struct pp_job *job, const struct pp_data *data,
                          const char *bits, bool writes, struct pp_restart *out)
{
    *out =
        (struct pp_restart){.every = config->save_every, .start = {.learning_rate = config->lr, .best_loss = INFINITY}};
    if (!config->save_every && !config->resume) return PP_OK;
    const size_t size = strlen(config->save) + sizeof PP_CHECKPOINT_SUFFIX;
    PP_TRY(PP_NEW(&out->path, size));
    snprintf(out->path, size, "%s%s", config->save, PP_CHECKPOINT_SUFFIX);
    pp_restart_identify(config, job, data, bits, &out->identity);
    PP_TRY(pp_notes_check(&out->identity));
    if (writes) PP_TRY(take_lock(out));
    if (!config->resume && access(out->path, F_OK) == 0)
        pp_warn("--save-every: %s of an earlier run is there, and will be replaced; --resume would go on from it",
                out->path);
    return PP_OK;
}

pp_status pp_restart_resume(const struct pp_config *config, const struct pp_job *job, struct pp_restart *restart)
{
    struct pp_restart_state state;
    if (!config->resume) return PP_OK;
    PP_TRY(pp_restart_read(restart->path, &restart->identity, job->model, config->resume_changed, &state,
                           &restart->resumed));
    if (restart->resumed) restart->start = state;
    return PP_OK;
}

pp_status pp_restart_check(const struct pp_restart *restart, const struct pp_config *config)
{
    if (!config->resume || restart->resumed) return PP_OK;
    if (!config->save_every)
        return pp_fail(PP_USAGE,
                       "--resume: there is no %s, and without --save-every none is made: add --save-every N, or leave "
                       "--resume out",
                       restart->path);
    pp_warn("--resume: there is no %s; the run starts from the beginning", restart->path);
    return PP_OK;
}

void pp_restart_close(struct pp_restart *restart)
{
    pp_file_lock_release(&restart->lock);
    free(restart->path);
    restart->path = NULL;
}

/* The file that is there stays, and may be the last good one. */
static void leave_out(struct pp_restart *restart, struct pp_weights_writer *writer, int step)
{
    pp_weights_discard(writer);
    if (!restart->diverged)
        pp_warn("no checkpoint after step %d, nor after later ones like it: numbers of the model are not finite, so "
                "training has diverged; %s stays as it is, if it is there",
                step, restart->path);
    restart->diverged = true;
}

pp_status pp_restart_save(struct pp_restart *restart, struct pp_worker *w, const struct pp_restart_state *state,
                          const float *best)
{
    struct pp_weights_writer *writer = NULL;
    if (w->me == 0) PP_TRY(pp_restart_create(restart->path, &restart->identity, w->job->model, state, &writer));
    /* Other replicas may have shares of what the optimizer keeps only. */
    const struct pp_shape *shape = &w->job->model->shape;
    const bool first = w->replica == 0 || pp_shape_splits_weights(shape) || shape->zero == PP_ZERO_PARAMETERS;
    pp_status status = PP_OK;
    for (int part = first ? 0 : 1; part < pp_parameters_parts(w->job->model) && status == PP_OK; part++)
        status = pp_parameters_append(w, writer, part, NULL);
    if (status == PP_OK && first && has_best(state)) status = pp_parameters_append(w, writer, 0, best);
    if (w->me != 0) return status;
    if (status == PP_OK && pp_weights_finite(writer)) return pp_weights_commit(writer);
    if (status == PP_OK)
        leave_out(restart, writer, state->step);
    else
        pp_weights_discard(writer);
    return status;
}

pp_status pp_restart_load(const struct pp_restart *restart, struct pp_worker *w, float *best)
{
    struct pp_weights_reader *reader;
    const bool wanted = best && has_best(&restart->start);
    PP_TRY(open_tensors(restart->path, w->job->model, &restart->start, &reader));
    const pp_status status = pp_parameters_read(w, reader, wanted ? best : NULL);
    pp_weights_close(reader);
    return pp_prefix(status, "--resume");
}
