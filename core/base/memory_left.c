/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/memory_left.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LINE = 512 };

/* The number behind `key` at the beginning of a line of a file; with an empty key the first number. -1: there is none.
 */
static int64_t number_in(const char *path, const char *key)
{
    char line[LINE];
    int64_t found = -1;
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    while (found < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), "%" SCNd64, &found) != 1) break;
    (void)fclose(file); /* it was only read */
    return found;
}

static int64_t system_left(const char *root)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    const int64_t kib = number_in(path, "MemAvailable:");
    return kib < 0 || kib > INT64_MAX / 1024 ? -1 : kib * 1024;
}

/* Where a version of control groups has its figures. */
static const struct version {
    const char *controller; /* of its line in /proc/self/cgroup; "": version 2 */
    const char *folder, *limit, *used;
    const char *cached[2]; /* files that are used seldom, and often: both give way */
} versions[] = {
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file ", "active_file "}},
    {"memory",
     "/sys/fs/cgroup/memory",
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     {"total_inactive_file ", "total_active_file "}},
};

static int64_t figure(const char *folder, const char *name, const char *key)
{
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n < (int)sizeof path ? number_in(path, key) : -1;
}

/* What one group leaves; -1: it has no limit. */
static int64_t group_left(const struct version *v, const char *folder)
{
    const int64_t limit = figure(folder, v->limit, ""), used = figure(folder, v->used, "");
    int64_t held = used;
    if (limit < 0 || used < 0) return -1;
    for (int i = 0; i < 2; i++) {
        const int64_t cached = figure(folder, "memory.stat", v->cached[i]);
        if (cached > 0 && cached < held) held -= cached;
    }
    return limit > held ? limit - held : 0;
}

static int64_t least(int64_t a, int64_t b) { return a < 0 || (b >= 0 && b < a) ? b : a; }

/* A group and those that it is in. A container may see none of the groups but its own, which then is the topmost. */
static int64_t groups_left(const struct version *v, const char *root, const char *group)
{
    char folder[PATH_MAX];
    int64_t left = -1;
    const size_t top = strlen(root) + strlen(v->folder);
    if (snprintf(folder, sizeof folder, "%s%s%s", root, v->folder, group) >= (int)sizeof folder) return -1;
    for (;;) {
        left = least(left, group_left(v, folder));
        if (strlen(folder) <= top) return left;
        *strrchr(folder, '/') = '\0';
    }
}

/* Is the name in a list with commas? */
static bool lists(const char *list, size_t size, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list, *end = list + size; at <= end; at++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        if (!comma) comma = end;
        if ((size_t)(comma - at) == length && memcmp(at, name, length) == 0) return true;
        at = comma;
    }
    return false;
}

int64_t pp_memory_left(const char *root)
{
    char line[LINE], path[PATH_MAX];
    int64_t left = system_left(root);
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) { /* "4:memory:/a/b", "0::/a/b" */
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group || group[1] != '/') continue;
        line[strcspn(line, "\n")] = '\0';
        for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
            if (lists(controllers + 1, (size_t)(group - controllers - 1), versions[i].controller))
                left = least(left, groups_left(&versions[i], root, group + 1));
    }
    if (file) (void)fclose(file);
    return left;
}
