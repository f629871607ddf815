/* SPDX-License-Identifier: Apache-2.0
 *
 * What must be equal between a checkpoint and the run that goes on from it. Between the files of restart.
 */
#ifndef PP_EXEC_RESTART_INSIDE_H
#define PP_EXEC_RESTART_INSIDE_H

#include "exec/restart.h"

#define PP_RESTART_VERSION "2"

/* Names of notes: the device, and the learning rate. */
extern const char pp_note_bits[], pp_note_rate[];

/* A list for the user; "" where nothing differs. */
struct pp_restart_list {
    char text[704];
    size_t used;
    bool cut; /* there is more than the text has room for */
};

/* What differs between a checkpoint and this run. */
struct pp_restart_differences {
    struct pp_restart_list all, fixed; /* fixed: what no run can change */
    bool batch;                        /* which words a step reads */
    bool seed, data;                   /* --seed; the text */
};

/* Adds the notes that say which run it is: options, data, and what else equal bits need (see pp_restart_open()). */
void pp_restart_identify(const struct pp_config *config, const struct pp_job *job, const struct pp_data *data,
                         const char *bits, struct pp_notes *notes);
/* Writes the options among a checkpoint's notes as this run writes its own (pp_config_make_canonical()), so that equal
 * models compare as equal. Values that are none of their option stay as they are. PP_NOMEM. */
pp_status pp_restart_make_canonical(struct pp_notes *notes) PP_MUST_CHECK;
/* Was the checkpoint with these notes written by the first version? */
bool pp_restart_is_old(const struct pp_notes *theirs);
/* Compares a run's notes with those of a checkpoint. PP_INPUT if the file is none, or one of an unknown version. */
pp_status pp_restart_compare(const char *path, const struct pp_notes *mine, const struct pp_notes *theirs,
                             struct pp_restart_differences *out) PP_MUST_CHECK;
/* PP_INPUT if the run may not go on with these differences; a warning of those that --resume-changed allows. changed:
 * was that given? state: where the checkpoint is. */
pp_status pp_restart_judge(const char *path, const struct pp_restart_differences *d, bool changed,
                           const struct pp_notes *theirs, const struct pp_restart_state *state) PP_MUST_CHECK;

#endif
