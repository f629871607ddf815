/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fuzz targets share: a folder in memory for the files that they hand to the readers, and a small job.
 */
#ifndef PP_TESTS_FUZZ_H
#define PP_TESTS_FUZZ_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/options/config.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A rule that every input must keep; a breach is a finding. */
static inline void fuzz_must(int holds, const char *rule)
{
    if (holds) return;
    fprintf(stderr, "broken: %s; the last message: %s\n", rule, pp_message());
    abort();
}

/* The folder of this process; removed by run.sh together with that of all others. Its name is in messages, which
 * libFuzzer compares: so it has no process id, with which no run would be like the one before. */
static inline const char *fuzz_folder(void)
{
    static char folder[256];
    const char *parent = getenv("PP_FUZZ_FOLDER");
    for (int i = 0; !folder[0]; i++) {
        snprintf(folder, sizeof folder, "%s/%d", parent ? parent : "/dev/shm", i);
        if (mkdir(folder, 0700) == 0) break;
        fuzz_must(errno == EEXIST, "a folder for files can be made");
        folder[0] = 0;
    }
    return folder;
}

static inline const char *fuzz_path(const char *name, char *buf, size_t size)
{
    snprintf(buf, size, "%s/%s", fuzz_folder(), name);
    return buf;
}

static inline void fuzz_write(const char *path, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    fuzz_must(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0, "a file can be written");
}

/* The options of a program that was called with these words. */
static inline void fuzz_config(unsigned tool, const char *const *words, int n, struct pp_config *config)
{
    char *argv[16];
    for (int i = 0; i < n; i++) argv[i] = (char *)words[i];
    fuzz_must(pp_config_parse(tool, n, argv, config, NULL) == PP_OK, "good options are taken");
}

#endif
