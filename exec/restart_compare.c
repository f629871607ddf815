/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "exec/restart_inside.h"

#define OLD_VERSION "1" /* without checksums, epoch and batch */

const char pp_note_bits[] = "device", pp_note_rate[] = "--lr";
static const char note_key[] = "accumulation key", note_data[] = "data", note_rows[] = "rows of all replicas",
                  note_tokens[] = "--tokens", note_seed[] = "--seed";

void pp_restart_identify(const struct pp_config *config, const struct pp_job *job, const struct pp_data *data,
                         const char *bits, struct pp_notes *notes)
{
    char name[PP_NOTE_NAME], text[PP_OPTION_TEXT];
    for (int i = 0; i < pp_config_nrows; i++) {
        const struct pp_opt *row = &pp_config_rows[i];
        if (!(row->traits & PP_OPT_FIXED)) continue;
        snprintf(name, sizeof name, "--%s", row->name);
        pp_notes_add(notes, name, pp_options_text(row, config, text));
    }
    snprintf(text, sizeof text, "%016" PRIx64, pp_data_hash(data));
    pp_notes_add(notes, note_data, text);
    snprintf(text, sizeof text, "%" PRId64, (int64_t)config->rows * config->replicas);
    pp_notes_add(notes, note_rows, text);
    pp_notes_add(notes, note_key, job->accumulation_key);
    pp_notes_add(notes, pp_note_bits, bits);
}

/* The option that the note is of; NULL if it is of none. */
static const struct pp_opt *option_of(const struct pp_note *note)
{
    return strncmp(note->name, "--", 2) == 0 ? pp_config_row(note->name + 2) : NULL;
}

/* Adds options that a checkpoint is too old to name, as what they were without a name: the default. */
static void add_later(struct pp_notes *notes)
{
    char name[PP_NOTE_NAME];
    for (int i = 0; i < pp_config_nrows; i++) {
        const struct pp_opt *row = &pp_config_rows[i];
        snprintf(name, sizeof name, "--%s", row->name);
        if (row->traits & PP_OPT_LATER && !pp_notes_find(notes, name)) pp_notes_add(notes, name, row->def);
    }
}

pp_status pp_restart_make_canonical(struct pp_notes *notes)
{
    struct pp_config *config;
    bool known[PP_NOTES] = {false};
    char text[PP_OPTION_TEXT];
    PP_TRY(PP_NEW(&config, 1));
    if (pp_notes_find(notes, PP_NOTE_CHECKPOINT)) add_later(notes);
    for (int i = 0; i < notes->n; i++) {
        const struct pp_opt *row = option_of(&notes->v[i]);
        known[i] = row && row->traits & PP_OPT_FIXED && pp_options_set(row, notes->v[i].value, config) == PP_OK;
    }
    const pp_status status = pp_config_make_canonical(config);
    for (int i = 0; i < notes->n && status == PP_OK; i++)
        if (known[i])
            snprintf(notes->v[i].value, sizeof notes->v[i].value, "%s",
                     pp_options_text(option_of(&notes->v[i]), config, text));
    free(config);
    return status;
}

static bool may_change(const char *name)
{
    if (strncmp(name, "--", 2) != 0) return strcmp(name, note_data) != 0;
    const struct pp_opt *row = pp_config_row(name + 2);
    return row && row->traits & PP_OPT_CHANGES;
}

static void add_to_list(const struct pp_note *mine, const char *other, struct pp_restart_list *out)
{
    enum { MOST = 110 }; /* of a value: keys are long */
    static const char more[] = ", ...";
    const size_t left = sizeof out->text - out->used;
    if (out->cut) return;
    out->cut = left < PP_NOTE_NAME + 2 * MOST + sizeof ",  was  and is " + sizeof more;
    if (out->cut)
        snprintf(out->text + out->used, left, "%s", more);
    else
        out->used += (size_t)snprintf(out->text + out->used, left, "%s%s was %.*s and is %.*s", out->used ? ", " : "",
                                      mine->name, MOST, other, MOST, mine->value);
}

static void add_difference(const struct pp_note *mine, const char *other, struct pp_restart_differences *out)
{
    out->batch = out->batch || strcmp(mine->name, note_rows) == 0 || strcmp(mine->name, note_tokens) == 0;
    out->seed = out->seed || strcmp(mine->name, note_seed) == 0;
    out->data = out->data || strcmp(mine->name, note_data) == 0;
    add_to_list(mine, other, &out->all);
    if (!may_change(mine->name)) add_to_list(mine, other, &out->fixed);
}

bool pp_restart_is_old(const struct pp_notes *theirs)
{
    const char *version = pp_notes_find(theirs, PP_NOTE_CHECKPOINT);
    return version && strcmp(version, OLD_VERSION) == 0;
}

pp_status pp_restart_compare(const char *path, const struct pp_notes *mine, const struct pp_notes *theirs,
                             struct pp_restart_differences *out)
{
    const char *version = pp_notes_find(theirs, PP_NOTE_CHECKPOINT);
    *out = (struct pp_restart_differences){0};
    if (version && strcmp(version, PP_RESTART_VERSION) != 0 && !pp_restart_is_old(theirs))
        return pp_fail(PP_INPUT, "%s is a checkpoint of version %s, of another ppkit; this one knows %s and %s", path,
                       version, OLD_VERSION, PP_RESTART_VERSION);
    for (int i = 0; i < mine->n; i++) {
        const struct pp_note *note = &mine->v[i];
        const char *other = pp_notes_find(theirs, note->name);
        if (!other && pp_restart_is_old(theirs) && strcmp(note->name, note_rows) == 0)
            continue; /* the key has the replicas */
        if (!version || !other)
            return pp_fail(PP_INPUT, "%s is no checkpoint of this version: it has no '%s'", path,
                           version ? note->name : PP_NOTE_CHECKPOINT);
        if (strcmp(other, note->value) != 0 && strcmp(note->name, pp_note_bits) != 0) add_difference(note, other, out);
    }
    return PP_OK;
}

/* Of what may change --resume-changed says nothing, but for the seed of a text that was generated. */
static pp_status is_another_run(const char *path, const struct pp_restart_differences *d, bool changed)
{
    if (!changed)
        return pp_fail(PP_INPUT,
                       "%s is of another run: %s; resume with the options that it was begun with, or leave out "
                       "--resume to begin anew",
                       path, d->all.text);
    return pp_fail(PP_INPUT,
                   "%s is of another run: %s; that cannot change%s: give what it was begun with, or leave out "
                   "--resume-changed to begin anew",
                   path, d->fixed.text, d->seed && d->data ? " (without --data the text depends on --seed)" : "");
}

pp_status pp_restart_judge(const char *path, const struct pp_restart_differences *d, bool changed,
                           const struct pp_notes *theirs, const struct pp_restart_state *state)
{
    if (d->all.used == 0) return PP_OK;
    if (d->fixed.used > 0) return is_another_run(path, d, changed);
    if (!changed)
        return pp_fail(PP_INPUT,
                       "%s was written with other options: %s; give the old ones, to go on to the same bits, or "
                       "--resume-changed, to go on with the new ones",
                       path, d->all.text);
    if (pp_restart_is_old(theirs))
        return pp_fail(PP_INPUT,
                       "%s is of an older version of ppkit, and was written with other options: %s; resume with the "
                       "old ones first: --resume-changed goes on from the checkpoint that this run writes",
                       path, d->all.text);
    if (d->batch && state->batch > 0)
        return pp_fail(PP_INPUT,
                       "%s was written with other options: %s; it is inside an epoch, after %d of its batch%s, and "
                       "other batches would have some words twice in this epoch, and others never: keep --tokens, and "
                       "--rows times --replicas, until an epoch has ended",
                       path, d->all.text, state->batch, pp_plural_es(state->batch));
    pp_warn("%s was written with other options: %s; the run goes on with the new ones", path, d->all.text);
    return PP_OK;
}
