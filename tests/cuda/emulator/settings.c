/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "emulator.h"

enum { SETTINGS = 32, FAILURES = 16, ALWAYS = -1 };

/* "cudaMalloc:3", "cudaMalloc:3=2", "cudaStreamQuery:*": the third call fails (with error 2), each call does. */
struct failure {
    char function[48];
    int turn, code;
    atomic_int calls;
};

static struct pp_emu_settings settings;
static struct failure failures[FAILURES];
static int nfailures;
static atomic_llong counts[PP_EMU_COUNTS];
static _Thread_local cudaError_t last_error;

static const char *const count_names[PP_EMU_COUNTS] = {
    "launches",           "products",        "copies",       "fills",
    "host_waits",         "host_functions",  "full_queues",  "device_allocations",
    "host_allocations",   "streams",         "events",       "collectives",
    "live_device_bytes",  "live_host_bytes", "live_streams", "live_events",
    "live_communicators", "live_contexts",   "complaints"};

static const char *read_names[SETTINGS]; /* of all settings */
static int nread;

/* Adds a line with which no other process's is mixed. */
static void append(const char *path, const char *line)
{
    FILE *file = fopen(path, "a");
    if (!file) {
        perror(path);
        abort();
    }
    fputs(line, file);
    fclose(file);
}

static void say(const char *line)
{
    const char *complaints = getenv("PP_EMULATE_COMPLAINTS");
    fputs(line, stderr);
    if (complaints && *complaints) append(complaints, line);
}

/* A setting that is written wrongly would not be set, and its test see nothing. */
static void refuse(const char *what, const char *why)
{
    char line[700];
    snprintf(line, sizeof(line), "emulator: %s %s\n", what, why);
    say(line);
    abort();
}

/* NULL if it is not set, or empty. */
static const char *word(const char *name)
{
    const char *text = getenv(name);
    if (nread == SETTINGS) refuse(name, "is one too many");
    read_names[nread++] = name;
    return text && *text ? text : NULL;
}

static int64_t parse(const char *name, const char *text)
{
    char *end;
    const int64_t value = strtoll(text, &end, 10);
    if (end == text || *end) refuse(name, "is no number");
    return value;
}

static int64_t number(const char *name, int64_t other)
{
    const char *text = word(name);
    return text ? parse(name, text) : other;
}

static void refuse_unknown(void)
{
    for (char **variable = environ; *variable; variable++) {
        bool good = strncmp(*variable, "PP_EMULATE_", strlen("PP_EMULATE_")) != 0;
        for (int i = 0; i < nread && !good; i++) {
            const size_t length = strlen(read_names[i]);
            good = strncmp(*variable, read_names[i], length) == 0 && (*variable)[length] == '=';
        }
        if (!good) refuse(*variable, "is no setting");
    }
}

static void read_order(const char *text)
{
    settings.reversed = text && strcmp(text, "reverse") == 0;
    if (text && !settings.reversed) refuse("PP_EMULATE_ORDER", "is not 'reverse'");
}

static void read_failures(const char *text)
{
    char copy[512], *save = NULL;
    snprintf(copy, sizeof(copy), "%s", text ? text : "");
    for (char *item = strtok_r(copy, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
        char *turn = strchr(item, ':'), *code = strchr(item, '=');
        if (!turn || nfailures == FAILURES) refuse(item, "in PP_EMULATE_FAIL is not FUNCTION:TURN, or one too many");
        struct failure *f = &failures[nfailures++];
        *turn++ = '\0';
        if (code) *code++ = '\0';
        snprintf(f->function, sizeof(f->function), "%s", item);
        f->turn = strcmp(turn, "*") == 0 ? ALWAYS : (int)parse("PP_EMULATE_FAIL: a turn", turn);
        f->code = code ? (int)parse("PP_EMULATE_FAIL: a code", code) : 0;
    }
}

static void read_settings(void)
{
    settings.driver = number("PP_EMULATE_DRIVER", 1) != 0;
    settings.peers = number("PP_EMULATE_PEERS", 1) != 0;
    settings.devices = (int)number("PP_EMULATE_DEVICES", 2);
    if (settings.devices > PP_EMU_DEVICES) settings.devices = PP_EMU_DEVICES;
    settings.memory_bytes = (uint64_t)number("PP_EMULATE_MEMORY", 80ll << 30);
    settings.capability = (int)number("PP_EMULATE_CAPABILITY", 90);
    settings.shared_bytes = (int)number("PP_EMULATE_SHARED_KIB", PP_EMU_SHARED_MOST >> 10) << 10;
    if (settings.shared_bytes > PP_EMU_SHARED_MOST) settings.shared_bytes = PP_EMU_SHARED_MOST;
    settings.kernel_ns = number("PP_EMULATE_KERNEL_NS", 0);
    settings.jitter_us = number("PP_EMULATE_JITTER_US", 0);
    settings.seed = (unsigned)number("PP_EMULATE_SEED", 1);
    settings.queue = (uint64_t)number("PP_EMULATE_QUEUE", 1024);
    settings.partitions = number("PP_EMULATE_PARTITIONS", 1) != 0;
    settings.own_events = (int)number("PP_EMULATE_OWN_EVENTS", PP_EMU_ALL_EVENTS);
    settings.cold_ns = number("PP_EMULATE_COLD_MS", 0) * 1000000;
    settings.first_offer_us = number("PP_EMULATE_FIRST_OFFER_US", 0);
    settings.unsteady = number("PP_EMULATE_UNSTEADY_OFFER", 0) != 0;
    settings.valid_alignment = (uint32_t)number("PP_EMULATE_VALID_ALIGNMENT", 1);
    settings.least_alignment = (uint32_t)number("PP_EMULATE_LEAST_ALIGNMENT", 1);
    settings.numbered = number("PP_EMULATE_NUMBERED", 0) != 0;
    settings.strict = number("PP_EMULATE_STRICT", 0) != 0;
    settings.mute = number("PP_EMULATE_NCCL_MUTE", 0) != 0;
    settings.stats = word("PP_EMULATE_STATS");
    (void)word("PP_EMULATE_COMPLAINTS"); /* for say() */
    read_order(word("PP_EMULATE_ORDER"));
    read_failures(word("PP_EMULATE_FAIL"));
    refuse_unknown();
}

const struct pp_emu_settings *pp_emu_settings(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_settings);
    return &settings;
}

int pp_emu_injected(const char *function, int usual)
{
    pp_emu_settings();
    for (int i = 0; i < nfailures; i++) {
        struct failure *f = &failures[i];
        if (strcmp(f->function, function) != 0) continue;
        const int call = atomic_fetch_add(&f->calls, 1) + 1;
        if (f->turn == ALWAYS || f->turn == call) return f->code ? f->code : usual;
    }
    return 0;
}

cudaError_t pp_emu_error(cudaError_t error)
{
    if (error != cudaSuccess) last_error = error;
    return error;
}

static cudaError_t usual_failure(const char *function)
{
    const bool allocates = strstr(function, "Malloc") || strstr(function, "Alloc");
    return allocates ? cudaErrorMemoryAllocation : cudaErrorUnknown;
}

cudaError_t pp_emu_enter(const char *function)
{
    const struct pp_emu_settings *s = pp_emu_settings();
    if (!s->driver) return cudaErrorInsufficientDriver;
    if (!s->devices) return cudaErrorNoDevice;
    const cudaError_t fault = pp_emu_fault(pp_emu_current());
    if (fault != cudaSuccess) return fault;
    return (cudaError_t)pp_emu_injected(function, usual_failure(function));
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t fault = pp_emu_fault(pp_emu_current());
    const cudaError_t error = fault != cudaSuccess ? fault : last_error;
    last_error = cudaSuccess;
    return error;
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
#define E(error, text)                                                                                                 \
    {                                                                                                                  \
        error, #error, text                                                                                            \
    }
    E(cudaSuccess, "no error"),
    E(cudaErrorInvalidValue, "invalid argument"),
    E(cudaErrorMemoryAllocation, "out of memory"),
    E(cudaErrorInitializationError, "initialization error"),
    E(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    E(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    E(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    E(cudaErrorInvalidDevice, "invalid device ordinal"),
    E(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    E(cudaErrorSymbolNotFound, "named symbol not found"),
    E(cudaErrorNotReady, "device not ready"),
    E(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    E(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    E(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    E(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    E(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    E(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    E(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    E(cudaErrorLaunchFailure, "unspecified launch failure"),
    E(cudaErrorNotSupported, "operation not supported"),
    E(cudaErrorUnknown, "unknown error"),
#undef E
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
        if (errors[i].error == error) return errors[i].name;
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
        if (errors[i].error == error) return errors[i].text;
    }
    return "unrecognized error code";
}

void pp_emu_complain(const char *format, ...)
{
    va_list arguments;
    char text[400], seed[40] = "", line[480];
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (settings.jitter_us > 0) snprintf(seed, sizeof(seed), " (PP_EMULATE_SEED=%u)", settings.seed);
    snprintf(line, sizeof(line), "emulator: %s%s\n", text, seed);
    say(line);
    pp_emu_count(PP_EMU_COMPLAINTS, 1);
}

void pp_emu_count(enum pp_emu_count what, int64_t by) { atomic_fetch_add(&counts[what], by); }

int64_t pp_emu_queued(void)
{
    return atomic_load(&counts[PP_EMU_LAUNCHES]) + atomic_load(&counts[PP_EMU_PRODUCTS]) +
           atomic_load(&counts[PP_EMU_COPIES]) + atomic_load(&counts[PP_EMU_FILLS]);
}

int64_t pp_emu_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* One line for each process: {"pid":1,"launches":2,...}. */
__attribute__((destructor)) static void write_stats(void)
{
    char line[1024];
    int n = snprintf(line, sizeof(line), "{\"pid\":%d", (int)getpid());
    if (!settings.stats) return;
    for (int i = 0; i < PP_EMU_COUNTS; i++)
        n += snprintf(line + n, sizeof(line) - (size_t)n, ",\"%s\":%lld", count_names[i], (long long)counts[i]);
    snprintf(line + n, sizeof(line) - (size_t)n, "}\n");
    append(settings.stats, line);
}
