/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/targets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/text.h"
#include "core/options/devices.h"
#include "core/plan/movers.h"
#include "sim/profiles.h"
#include "sim/split.h"

int pp_targets_count(const struct pp_config *config) { return config->machine.n > 1 ? config->machine.n : 1; }

pp_status pp_targets_check(const struct pp_config *config)
{
    const int machines = config->machine.n, prices = config->price.n;
    if (config->library_attention && (machines == 0 || config->profile))
        return pp_fail(PP_USAGE, "--attention-kernel library is of a data sheet: %s",
                       machines == 0 ? "add --machine" : "leave --profile out");
    if (prices <= 1 || prices == machines) return PP_OK;
    if (machines <= 1)
        return pp_fail(PP_USAGE, "--price has %d prices, but --machine names %s; give one price, or as many machines",
                       prices, machines ? "one machine" : "none");
    return pp_fail(PP_USAGE,
                   "--price has %d prices for %d machines (one that is named twice counts once); give one price for "
                   "all, or one for each",
                   prices, machines);
}

/* Joins the elements first .. last of a list with commas, as they were given. */
static void join_names(const struct pp_texts *names, int first, int last, char *buf, size_t size)
{
    struct pp_text text = pp_text_in(buf, size);
    for (int i = first; i <= last; i++) pp_text_add(&text, "%s%s", i > first ? "," : "", names->v[i]);
}

/* Finds machine i of the list. If it is none, it may be a part of a path with a comma: if there is such a file, the
 * message says so. */
static pp_status find_machine_file(const struct pp_texts *names, int i, struct pp_machine *out)
{
    char path[PP_MESSAGE_BYTES];
    const pp_status status = pp_machine_find(names->v[i], out);
    for (int first = 0; status != PP_OK && first <= i; first++)
        for (int last = first < i ? i : i + 1; last < names->n; last++) {
            join_names(names, first, last, path, sizeof path);
            if (access(path, F_OK) == 0)
                return pp_fail(PP_USAGE,
                               "--machine: a comma stands between machines, so the file %s can not be named; give it "
                               "a name without one, or a link",
                               path);
        }
    return status;
}

/* Sets the target's config, with machine i alone, and its predictor. */
static pp_status begin(const struct pp_predictor *common, int i, struct pp_target *t)
{
    const struct pp_config *all = common->config;
    const struct pp_reals *price = &all->price;
    t->config = *all;
    t->predictor = *common;
    t->predictor.config = &t->config;
    if (price->n > 0) t->config.price = (struct pp_reals){1, {price->v[price->n > 1 ? i : 0]}};
    if (all->machine.n == 0) return PP_OK;
    t->config.machine = (struct pp_texts){.n = 1, .v = {all->machine.v[i]}};
    PP_TRY(find_machine_file(&all->machine, i, &t->predictor.machine));
    return all->library_attention ? pp_machine_take_library(&t->predictor.machine) : PP_OK;
}

/* PP_USAGE if machine i was named before. Lists have no value twice (core/options/options.h), but a file may have
 * several paths. */
static pp_status check_new(const struct pp_target *targets, int i)
{
    const char *name = targets[i].predictor.machine.name;
    for (int k = 0; k < i; k++)
        if (strcmp(targets[k].predictor.machine.name, name) == 0)
            return pp_fail(PP_USAGE, "--machine: %s and %s are one machine, %s; name it once",
                           pp_config_machine(&targets[k].config), pp_config_machine(&targets[i].config), name);
    return PP_OK;
}

/* Reads the profile of --profile, or those of --machine; they replace the database. */
static pp_status open_texts(struct pp_target *t)
{
    const struct pp_config *config = &t->config;
    if (config->profile)
        PP_TRY(pp_profiles_of_file(config->profile, &t->texts));
    else if (pp_config_machine(config) && !config->library_attention) /* profiles are of ppkit's own kernels */
        PP_TRY(pp_profiles_of_machine(pp_config_machine(config), &t->texts));
    if (!t->texts) return PP_OK;
    pp_db_share(t->texts, t->predictor.db_lock);
    t->predictor.db = t->texts;
    return PP_OK;
}

/* --device delay without --times: chooses the device whose profile says how long to wait, the one that was measured
 * last. */
static pp_status choose_waits(struct pp_target *t)
{
    const struct pp_config *config = &t->config;
    if (config->times || !pp_device_kind(config->device)->waits) return PP_OK;
    const char *path = config->profile   ? config->profile
                       : config->db      ? config->db
                       : t->predictor.db ? PP_USUAL_DB
                                         : NULL;
    PP_TRY(pp_waits_choose(&t->config, t->predictor.db, path, t->waits, sizeof t->waits));
    t->predictor.waits = t->waits;
    return PP_OK;
}

/* A machine with GPUs is one for cuda. PP_USAGE for --device with a machine of another kind. */
static pp_status choose_kind(struct pp_config *config, const struct pp_machine *machine)
{
    const bool gpus = machine->cores == 0, named = strcmp(config->device, "auto") != 0;
    if (pp_config_given(config, device) && named && pp_device_kind(config->device)->queue != gpus)
        return pp_fail(PP_USAGE, "machine %s has %s, and --device %s is another device; leave --device out",
                       machine->name, gpus ? "GPUs" : "no GPUs", config->device);
    if (gpus || !named) config->device = gpus ? pp_device_gpu()->name : pp_device_kind(NULL)->name;
    return PP_OK;
}

/* --device auto is the device that was measured last, else the cpu. */
static pp_status choose_device(struct pp_target *t)
{
    struct pp_config *config = &t->config;
    if (pp_config_machine(config)) PP_TRY(choose_kind(config, &t->predictor.machine));
    if (strcmp(config->device, "auto") == 0) {
        if (t->predictor.db) PP_TRY(pp_db_newest_device(t->predictor.db, t->device, sizeof t->device));
        config->device = t->device[0] ? t->device : pp_device_kind(NULL)->name;
    }
    return choose_waits(t);
}

/* Without --machine: finds the machine of the device, for times that were not measured. */
static pp_status find_machine(struct pp_target *t)
{
    if (pp_config_machine(&t->config)) return PP_OK;
    return pp_machine_find(pp_device_kind(t->config.device)->machine, &t->predictor.machine);
}

/* PP_USAGE for --transport and --threads where only a data sheet gives times: it has one kind of link, and one thread.
 */
static pp_status check_running(const struct pp_target *t)
{
    const struct pp_config *config = &t->config;
    const char *waits = t->predictor.waits; /* the device whose times are used */
    const struct pp_device_kind *device = pp_device_kind(waits ? waits : config->device);
    const bool transport = strcmp(config->transport, "auto") != 0;
    if (transport && !pp_mover_find(config->transport, device->queue ? PP_OF_DEVICES : PP_OF_HOSTS))
        return pp_fail(PP_USAGE, "--transport %s moves no data of device %s; leave it out, or name another --device",
                       config->transport, config->device);
    const bool threads = config->threads > 1;
    bool measured = t->predictor.db || config->times;
    if (threads && t->predictor.db && !waits)
        PP_TRY(pp_db_has_threads(t->predictor.db, config->device, config->threads, &measured));
    if (!measured && (threads || (transport && pp_config_machine(config))))
        return pp_fail(PP_USAGE,
                       "--%s: nothing was measured with that, and the data sheet of machine %s has one figure for "
                       "all; leave the option out",
                       threads ? "threads" : "transport", t->predictor.machine.name);
    return PP_OK;
}

static pp_status complete(struct pp_target *t)
{
    PP_TRY(open_texts(t));
    PP_TRY(choose_device(t));
    PP_TRY(find_machine(t));
    PP_TRY(check_running(t));
    PP_TRY(pp_split_find(&t->config, &t->predictor, t->texts, &t->layer_ns));
    t->config.layer_ns = t->layer_ns;
    return PP_OK;
}

pp_status pp_targets_find(const struct pp_predictor *common, struct pp_target **targets, int *n)
{
    const int count = pp_targets_count(common->config);
    *n = 0;
    PP_TRY(PP_NEW(targets, count));
    *n = count;
    for (int i = 0; i < count; i++) {
        PP_TRY(begin(common, i, &(*targets)[i]));
        PP_TRY(check_new(*targets, i));
    }
    for (int i = 0; i < count; i++) {
        struct pp_target *t = &(*targets)[i];
        const pp_status status = complete(t);
        if (status == PP_USAGE && count > 1)
            snprintf(t->impossible, sizeof t->impossible, "%s", pp_message());
        else
            PP_TRY(status);
    }
    return PP_OK;
}

void pp_targets_free(struct pp_target *targets, int n)
{
    for (int i = 0; i < n; i++) {
        free(targets[i].layer_ns);
        (void)pp_db_close(targets[i].texts); /* a database in memory: closing cannot fail */
    }
    free(targets);
}
