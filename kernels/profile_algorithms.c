/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/profile_algorithms.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file_lock.h"
#include "core/base/log.h"
#include "core/base/new_file.h"
#include "core/model/queue.h"

/* The file as it will be. */
struct draft {
    const char *path;
    struct pp_new_file file;  /* the draft lies under its temporary name */
    struct pp_file_lock lock; /* what another run adds to the file meanwhile would be lost */
    FILE *out;
    bool is_new; /* there is no file yet */
    int added;
};

static pp_status failed(const struct draft *draft, const char *doing)
{
    return pp_fail(PP_IO, "--algorithms: cannot %s %s: %s", doing, draft->path, pp_write_error());
}

/* After this the device can read the draft. */
static pp_status flush(const struct draft *draft)
{
    errno = 0;
    return fflush(draft->out) || ferror(draft->out) ? failed(draft, "write") : PP_OK;
}

/* Puts the draft in the file's place if all of it is there and it is wanted; else there is no draft any more. */
static pp_status put(struct draft *draft, pp_status status)
{
    const bool wanted = status == PP_OK && (draft->is_new || draft->added > 0);
    if (wanted) status = flush(draft);
    if (wanted && status == PP_OK && fsync(fileno(draft->out))) status = failed(draft, "write");
    if (fclose(draft->out) && status == PP_OK) status = failed(draft, "write");
    if (wanted && status == PP_OK && pp_new_file_put(&draft->file)) status = failed(draft, "write");
    if (*draft->file.temporary) (void)unlink(draft->file.temporary);
    return status;
}

static pp_status close_draft(struct draft *draft, pp_status status)
{
    if (draft->out) status = put(draft, status);
    pp_file_lock_release(&draft->lock);
    return status;
}

static pp_status copy(FILE *in, const struct draft *draft)
{
    char buffer[4096];
    size_t n;
    while ((n = fread(buffer, 1, sizeof buffer, in)) > 0) fwrite(buffer, 1, n, draft->out);
    if (ferror(in)) return pp_fail(PP_IO, "--algorithms: cannot read %s: %s", draft->path, strerror(errno));
    return flush(draft);
}

/* Begins as what there is. */
static pp_status begin_draft(struct draft *draft)
{
    pp_status status = PP_OK;
    FILE *in = fopen(draft->path, "r");
    if (!in && errno != ENOENT) return failed(draft, "read");
    draft->is_new = !in;
    draft->out = pp_new_file_stream(&draft->file);
    if (!draft->out) status = failed(draft, "write");
    if (draft->out && in) status = copy(in, draft);
    if (in) fclose(in);
    return status;
}

static pp_status open_draft(struct draft *draft, const char *path)
{
    draft->path = path;
    PP_TRY(pp_new_file_choose("--algorithms", path, false, &draft->file));
    if (!*draft->file.temporary)
        return pp_fail(PP_USAGE, "--algorithms: %s is no regular file, and algorithms are read from it, too", path);
    PP_TRY(pp_file_lock_take("--algorithms", draft->file.path, &draft->lock));
    return begin_draft(draft);
}

static pp_status tune_programs(const struct pp_profile *profile, const struct pp_job *job, struct pp_device *device,
                               struct draft *draft)
{
    const struct pp_profile_setup *setup = &profile->setup;
    PP_TRY(pp_profile_use(setup->backend, device));
    for (int c = 0; c < job->train->nclasses; c++) {
        if (setup->interrupted && setup->interrupted())
            return pp_fail(PP_INTERRUPTED, "interrupted while algorithms were chosen: nothing was stored");
        if (!pp_kinds[job->train->classes[c].kind].computes) continue;
        PP_TRY(setup->backend->queue->tune(device, &job->phase[PP_TRAIN].programs[c], draft->out, &draft->added));
    }
    return flush(draft);
}

/* What the device is to read: all that there is so far. The file itself as long as it is that, for messages name it. */
static const char *known_so_far(const struct draft *draft)
{
    if (draft->added > 0) return draft->file.temporary;
    return draft->is_new ? NULL : draft->path;
}

static pp_status tune_job(const struct pp_profile *profile, const struct pp_job *job, struct draft *draft)
{
    const struct pp_profile_setup *setup = &profile->setup;
    struct pp_device *device;
    struct pp_device_spec spec = pp_profile_device(setup->config, 0, pp_plan_workers(job->train));
    spec.algorithms = known_so_far(draft);
    PP_TRY(setup->backend->open(&spec, &device));
    const pp_status status = tune_programs(profile, job, device, draft);
    setup->backend->close(device);
    return status;
}

static pp_status tune_points(const struct pp_profile *profile, struct draft *draft)
{
    const struct pp_profile_setup *setup = &profile->setup;
    for (int i = 0; i < profile->npoints; i++) {
        struct pp_job *job;
        pp_progress("choosing algorithms: configuration %d of %d", i + 1, profile->npoints);
        PP_TRY(pp_job_create(setup->config, &profile->points[i], setup->schedules, setup->ops, false, NULL, &job));
        const pp_status status = tune_job(profile, job, draft);
        pp_job_free(job);
        PP_TRY(status);
    }
    return PP_OK;
}

pp_status pp_profile_algorithms(const struct pp_profile *profile, const char *path)
{
    struct draft draft = {0};
    pp_status status = open_draft(&draft, path);
    if (status == PP_OK) status = tune_points(profile, &draft);
    pp_progress(NULL);
    status = close_draft(&draft, status);
    if (status == PP_OK) pp_info("algorithms  of %d product%s added to %s", draft.added, pp_plural(draft.added), path);
    return status;
}
