/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/backend.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/printable.h"
#include "core/model/queue.h"
#include "core/options/listing.h"
#include "kernels/cpu/cpu.h"
#include "kernels/delay/delay.h"
#include "kernels/plugin.h"

/* PP_HAVE_CUDA: this build has the plugin. PP_PLUGIN_FOLDER: where, seen from the folder of the programs. */

static const struct pp_backend cuda_named = {
    .name = "cuda",
    .summary = "NVIDIA GPUs; products by cuBLAS",
};

/* In order of preference; the last works everywhere. */
static const struct device {
    const struct pp_backend *backend; /* of a plugin: name, summary */
    const char *plugin;               /* its file; NULL: part of the program */
    bool built;
    const char *file_env; /* names another file */
    const char *libraries;
} devices[] = {
    {&cuda_named, "ppkit-cuda.so", PP_HAVE_CUDA, "PPKIT_CUDA_BACKEND",
     "the CUDA toolkit's libraries (libcudart, libcublasLt)"},
    {&pp_backend_delay, NULL, true, NULL, NULL},
    {&pp_backend_cpu, NULL, true, NULL, NULL},
};

enum { DEVICES = sizeof devices / sizeof devices[0], PATH_BYTES = 4096 };

/* A plugin's file: named by the environment, else beside the programs. */
static void plugin_path(const struct device *d, char *path, size_t size)
{
    const char *named = getenv(d->file_env);
    if (named && *named) {
        snprintf(path, size, "%s", named);
        return;
    }
    char program[PATH_BYTES];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(program, '/');
    snprintf(path, size, "%.*s/%s/%s", slash ? (int)(slash - program) : 0, program, PP_PLUGIN_FOLDER, d->plugin);
}

/* Is there a file to load? PP_UNSUPPORTED says in a few words why not. */
static pp_status find_plugin(const struct device *d, char *path, size_t size)
{
    const char *env = getenv(d->file_env);
    const bool named = env && *env;
    plugin_path(d, path, size);
    /* What an earlier build left there is not of this one. */
    if ((named || d->built) && access(path, R_OK) == 0) return PP_OK;
    if (named) return pp_fail(PP_UNSUPPORTED, "%s=%s: %s", d->file_env, path, strerror(errno));
    if (!d->built)
        return pp_fail(PP_UNSUPPORTED, "not in this build of ppkit: build it where the CUDA toolkit is installed");
    return pp_fail(PP_UNSUPPORTED, "%s is missing: install ppkit again", path);
}

static pp_status check_plugin(const struct pp_plugin *plugin, const char *path)
{
    static const int64_t abi[] = PP_PLUGIN_ABI;
    _Static_assert(sizeof abi == sizeof plugin->abi, "PP_PLUGIN_ABI_NUMBERS");
    if (!plugin) return pp_fail(PP_UNSUPPORTED, "%s is not a backend of ppkit", path);
    if (memcmp(plugin->abi, abi, sizeof abi) != 0 || strcmp(plugin->version, PP_VERSION) != 0)
        return pp_fail(PP_UNSUPPORTED, "%s belongs to another ppkit than this one (%s): install both from one build",
                       path, PP_VERSION);
    return PP_OK;
}

/* Loads it for good: its libraries leave threads and exit functions behind. Loading it again finds it loaded. */
static pp_status load(const struct device *d, const struct pp_backend **out)
{
    char path[PATH_BYTES * 2];
    PP_TRY(find_plugin(d, path, sizeof path));
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return pp_fail(PP_UNSUPPORTED, "%s cannot be loaded: %s; are %s installed, or on LD_LIBRARY_PATH?", path,
                       dlerror(), d->libraries);
    const struct pp_plugin *plugin = dlsym(handle, PP_PLUGIN_SYMBOL);
    PP_TRY(check_plugin(plugin, path));
    *out = plugin->backend;
    return PP_OK;
}

static pp_status usable(const struct device *d, const struct pp_backend **out)
{
    *out = d->backend;
    if (d->plugin) PP_TRY(load(d, out));
    return (*out)->available ? (*out)->available() : PP_OK;
}

/* The first that can be used and computes. Only the reason why the first of all cannot is told. */
static pp_status find_auto(const struct pp_backend **out)
{
    char reason[PP_MESSAGE_BYTES] = "";
    for (int i = 0; i < DEVICES; i++) {
        if (devices[i].backend->waits) continue;
        const pp_status status = usable(&devices[i], out);
        if (status != PP_OK) {
            if (!*reason) snprintf(reason, sizeof reason, "%s", pp_message());
            continue;
        }
        if (i > 0) pp_info("device %s, not %s: %s", (*out)->name, devices[0].backend->name, reason);
        return PP_OK;
    }
    return pp_fail(PP_INTERNAL, "no device can be used");
}

static pp_status find_device(const char *name, const struct device **out)
{
    char names[128] = "auto";
    *out = &devices[DEVICES - 1];
    if (!name) return PP_OK;
    for (int i = 0; i < DEVICES; i++) {
        *out = &devices[i];
        if (!strcmp(name, devices[i].backend->name)) return PP_OK;
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, ", %s", devices[i].backend->name);
    }
    return pp_fail(PP_USAGE, "--device %s: there is no such device; there are %s", name, names);
}

static pp_status find_named(const char *name, const struct pp_backend **out)
{
    const struct device *device;
    PP_TRY(find_device(name, &device));
    return pp_prefix(usable(device, out), "--device %s", name ? name : device->backend->name);
}

pp_status pp_backend_find(const char *name, const struct pp_backend **out)
{
    pp_status status = name && !strcmp(name, "auto") ? find_auto(out) : find_named(name, out);
    if (status == PP_OK && (*out)->prepare) status = (*out)->prepare();
    if (status != PP_OK) *out = NULL;
    return status;
}

pp_status pp_backend_named(const char *name, const struct pp_backend **out)
{
    const struct device *device;
    *out = NULL;
    PP_TRY(find_device(name && !strcmp(name, "auto") ? NULL : name, &device));
    *out = device->backend;
    return PP_OK;
}

pp_status pp_backend_check_algorithms(const struct pp_backend *backend, const char *path)
{
    if (!path || (backend->queue && backend->queue->tune)) return PP_OK;
    return pp_fail(PP_USAGE,
                   "--algorithms: device %s has no algorithms to choose from: leave the option out, or use "
                   "--device cuda",
                   backend->name);
}

json_t *pp_backend_list(void)
{
    json_t *rows = json_array();
    for (int i = 0; i < DEVICES; i++) {
        const struct device *d = &devices[i];
        char path[PATH_BYTES * 2], missing[PP_MESSAGE_BYTES];
        const bool there = !d->plugin || find_plugin(d, path, sizeof path) == PP_OK;
        snprintf(missing, sizeof missing, "%s", pp_message());
        rows = pp_json_append(
            rows, pp_list_row_missing(d->backend->name, d->backend->summary, there ? NULL : pp_printable(missing)));
    }
    return rows;
}
