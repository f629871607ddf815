/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/nccl_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OLDEST_MAJOR = 2, OLDEST_MINOR = 18 }; /* ncclConfig_t.maxCTAs */

static struct {
    pthread_once_t once;
    struct pp_nccl nccl;
    pp_status status;
    char message[PP_MESSAGE_BYTES];
} loaded = {.once = PTHREAD_ONCE_INIT};

static pp_status find_functions(void *library, const char *name, struct pp_nccl *nccl)
{
    const struct {
        const char *symbol;
        void *place;
    } wanted[] = {
#define X(member, symbol) {#symbol, &nccl->member},
        PP_NCCL_FUNCTIONS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *function = dlsym(library, wanted[i].symbol);
        if (!function) return pp_fail(PP_UNSUPPORTED, "%s has no function %s: it is too old", name, wanted[i].symbol);
        memcpy(wanted[i].place, &function, sizeof function);
    }
    return PP_OK;
}

static pp_status load(void)
{
    const char *name = getenv("PPKIT_NCCL");
    if (!name || !*name) name = "libnccl.so.2";
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return pp_fail(PP_UNSUPPORTED, "NCCL cannot be loaded (%s): install it, or name the file in PPKIT_NCCL",
                       dlerror());
    PP_TRY(find_functions(library, name, &loaded.nccl));
    if (loaded.nccl.get_version(&loaded.nccl.version) != ncclSuccess ||
        loaded.nccl.version < NCCL_VERSION(OLDEST_MAJOR, OLDEST_MINOR, 0))
        return pp_fail(PP_UNSUPPORTED, "%s is NCCL %d, but %d.%d or later is needed", name, loaded.nccl.version,
                       OLDEST_MAJOR, OLDEST_MINOR);
    return PP_OK;
}

static void load_once(void)
{
    loaded.status = load();
    if (loaded.status != PP_OK) snprintf(loaded.message, sizeof loaded.message, "%s", pp_message());
}

pp_status pp_nccl_load(const struct pp_nccl **out)
{
    pthread_once(&loaded.once, load_once);
    if (loaded.status != PP_OK) return pp_fail(loaded.status, "%s", loaded.message);
    *out = &loaded.nccl;
    return PP_OK;
}

struct setting {
    const char *name, *value;
};

static pp_status set_unset(const struct setting *settings, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (setenv(settings[i].name, settings[i].value, 0))
            return pp_fail(PP_NOMEM, "cannot set %s in the environment", settings[i].name);
    return PP_OK;
}

pp_status pp_nccl_set_environment(bool shared, bool alone)
{
    char host[64] = "", id[96];
    /* Switches that add (NVLS) do not add in one order: other bits from run to run. */
    static const struct setting equal_bits[] = {{"NCCL_NVLS_ENABLE", "0"}};
    PP_TRY(set_unset(equal_bits, sizeof equal_bits / sizeof *equal_bits));
    if (!shared) return PP_OK;
    gethostname(host, sizeof host - 1);
    snprintf(id, sizeof id, "%s-%ld", host, (long)getpid());
    /* Each process is a host of its own; what would look for several hosts, or for one host's shared memory, is off. */
    const struct setting sharing[] = {
        {"NCCL_HOSTID", id},        {"NCCL_NET", "Socket"},   {"NCCL_IB_DISABLE", "1"},
        {"NCCL_MNNVL_ENABLE", "0"}, {"NCCL_RAS_ENABLE", "0"}, {"NCCL_CUMEM_HOST_ENABLE", "0"},
    };
    static const struct setting one_host[] = {{"NCCL_SOCKET_IFNAME", "lo"}};
    PP_TRY(set_unset(sharing, sizeof sharing / sizeof *sharing));
    return alone ? set_unset(one_host, sizeof one_host / sizeof *one_host) : PP_OK;
}

pp_status pp_nccl_check(const struct pp_nccl *nccl, ncclComm_t comm, ncclResult_t result, const char *what)
{
    if (result == ncclSuccess) return PP_OK;
    const char *more = nccl->last_error(comm);
    char line[300];
    snprintf(line, sizeof line, "%s", more ? more : "");
    line[strcspn(line, "\n")] = '\0';
    return pp_fail(result == ncclRemoteError ? PP_PEER : PP_IO, "%s failed: %s%s%s", what, nccl->error_string(result),
                   *line ? ": " : "", line);
}
