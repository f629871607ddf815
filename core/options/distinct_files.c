/* SPDX-License-Identifier: Apache-2.0 */
#include "core/options/distinct_files.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file_lock.h"
#include "core/base/new_file.h"
#include "core/options/file_names.h"
#include "core/options/times_file.h"

#define AT(field) offsetof(struct pp_config, field)
#define TEXT(part, name) {"--data", AT(data), "/" name, PP_RUNS, 0},
#define TOKENS(part, number, name) TEXT(part, name)

/* The files of options that have a single name. A suffix makes the name of a file that belongs to it. */
static const struct named {
    const char *option;
    size_t field; /* where struct pp_config has the name, a const char * */
    const char *suffix;
    unsigned readers, writers; /* enum pp_tool */
} named[] = {{"--init", AT(init), "", PP_PPEXEC, 0},
             {"--points", AT(points), "", PP_PPEXEC, 0},
             {"--save", AT(save), "", 0, PP_PPEXEC},
             {"--algorithms", AT(algorithms), "", PP_PPEXEC, PP_PPPROF},
             {"--algorithms", AT(algorithms), PP_LOCK_SUFFIX, 0, PP_PPPROF},
             {"--profile", AT(profile), "", PP_PPSIM, 0},
             {"--chrome", AT(chrome), "", 0, PP_PPREPORT},
             PP_TEXT_FILES(TEXT) PP_TOKEN_FILES(TOKENS)};

/* What SQLite writes for a database, and ppexec for a checkpoint. */
static const char *const of_database[] = {"", "-wal", "-shm", "-journal"};
static const char *const of_checkpoint[] = {PP_CHECKPOINT_SUFFIX, PP_CHECKPOINT_SUFFIX PP_NEW_FILE_SUFFIX,
                                            PP_CHECKPOINT_SUFFIX PP_LOCK_SUFFIX};

struct file {
    const char *what; /* an option, or words */
    const char *path; /* NULL: a standard stream */
    const char *suffix;
    bool written;
    dev_t device; /* of the file, or where it does not exist of the nearest folder that does */
    ino_t number;
    char name[2 * NAME_MAX]; /* in that folder; "": the file exists */
};

enum { FILES = 40 + 2 * PP_LIST_MAX };

struct files {
    int n, most;
    struct file *v;
    char times[PATH_MAX]; /* path of --times */
};

static bool set_number(struct file *f, const struct stat *info)
{
    f->device = info->st_dev;
    f->number = info->st_ino;
    return true;
}

/* The nearest folder that exists: whoever writes the file may make the others first. *name: the rest of the path. */
static bool find_folder(const char *path, struct stat *info, const char **name)
{
    char folder[PATH_MAX];
    const char *rest = path + strlen(path);
    do {
        while (rest > path && rest[-1] == '/') rest--;
        while (rest > path && rest[-1] != '/') rest--;
        snprintf(folder, sizeof folder, "%.*s", (int)(rest - path), path);
    } while (stat(*folder ? folder : ".", info) != 0 && *folder);
    *name = rest;
    return *folder || stat(".", info) == 0;
}

/* Of a file that does not exist: a folder and its name there, behind symbolic links. */
static bool find_place(struct file *f, const char *path)
{
    struct pp_new_file file;
    struct stat info;
    const char *name;
    size_t length = 0;
    if (pp_new_file_choose(f->what, path, false, &file) != PP_OK) return false;
    if (!find_folder(file.path, &info, &name) || strlen(name) >= sizeof f->name) return false;
    for (; *name; name++)
        if (*name != '/' || name[1] != '/') f->name[length++] = *name;
    return set_number(f, &info);
}

/* A file, or a pipe: what two write into it is mixed. */
static bool is_compared(const struct stat *info) { return S_ISREG(info->st_mode) || S_ISFIFO(info->st_mode); }

/* false: it is neither a regular file nor a pipe, and never will be a file. */
static bool identify(struct file *f)
{
    char path[PATH_MAX];
    struct stat info;
    const int length = snprintf(path, sizeof path, "%s%s", f->path, f->suffix);
    if (length < 0 || (size_t)length >= sizeof path) return false;
    if (stat(path, &info) != 0) return find_place(f, path);
    return is_compared(&info) && set_number(f, &info);
}

static void add(struct files *files, const char *what, const char *path, const char *suffix, bool written)
{
    struct file *f = &files->v[files->n];
    if (!path || files->n == files->most) return;
    *f = (struct file){.what = what, .path = path, .suffix = suffix, .written = written};
    if (identify(f)) files->n++;
}

static void add_stream(struct files *files, const char *what, int fd)
{
    struct file *f = &files->v[files->n];
    struct stat info;
    if (files->n == files->most || fstat(fd, &info) != 0 || !is_compared(&info)) return;
    *f = (struct file){.what = what, .written = true};
    set_number(f, &info);
    files->n++;
}

static void add_named(struct files *files, const struct pp_config *config, unsigned tool)
{
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        const struct named *row = &named[i];
        const char *path;
        memcpy(&path, (const char *)config + row->field, sizeof path);
        if (tool & (row->readers | row->writers)) add(files, row->option, path, row->suffix, tool & row->writers);
    }
}

static void add_checkpoint(struct files *files, const struct pp_config *config)
{
    const bool used = config->save_every || config->resume;
    for (size_t i = 0; i < sizeof of_checkpoint / sizeof *of_checkpoint && used; i++)
        add(files, "--save", config->save, of_checkpoint[i], true);
}

/* Names without a dot or a slash are those of schedules and machines that ppkit has. */
static void add_list(struct files *files, const char *option, const struct pp_texts *list)
{
    for (int i = 0; i < list->n; i++)
        if (strpbrk(list->v[i], "./")) add(files, option, list->v[i], "", false);
}

/* Block times, which only ppsim reads. */
static void add_times(struct files *files, const struct pp_config *config, unsigned tool)
{
    const size_t length = config->times && tool == PP_PPSIM ? pp_times_file(config->times) : 0;
    if (length == 0 || length >= sizeof files->times) return;
    memcpy(files->times, config->times, length);
    add(files, "--times", files->times, "", false);
}

/* The programs that need one take pp.db of this folder where none is named. */
static void add_database(struct files *files, const struct pp_config *config, unsigned tool, const char *operand)
{
    const bool needed = tool != PP_PPEXEC || pp_config_splits_by_time(config);
    const char *given = operand ? operand : config->db, *path = given || !needed ? given : PP_USUAL_DB;
    for (size_t i = 0; i < sizeof of_database / sizeof *of_database; i++)
        add(files, config->db ? "--db" : "the database", path, of_database[i], tool == PP_PPPROF || config->db);
}

static bool same(const struct file *a, const struct file *b)
{
    return a->device == b->device && a->number == b->number && strcmp(a->name, b->name) == 0;
}

static bool may_be_same(const struct file *a, const struct file *b)
{
    if (!a->path && !b->path) return true; /* 2>&1 */
    return strcmp(a->what, "--init") == 0 && strcmp(b->what, "--save") == 0 && !*b->suffix;
}

static const char *title(const struct file *f, char *buf, size_t size)
{
    if (f->path)
        snprintf(buf, size, "%s (%s%s)", f->what, f->path, f->suffix);
    else
        snprintf(buf, size, "%s", f->what);
    return buf;
}

static pp_status compare(const struct files *files)
{
    char one[400], other[400];
    for (int i = 0; i < files->n; i++)
        for (int j = i + 1; j < files->n; j++) {
            const struct file *a = &files->v[i], *b = &files->v[j];
            if (!(a->written || b->written) || !same(a, b) || may_be_same(a, b)) continue;
            return pp_fail(PP_USAGE, "%s and %s are the same file, which would be spoilt; name another one",
                           title(a, one, sizeof one), title(b, other, sizeof other));
        }
    return PP_OK;
}

pp_status pp_check_distinct_folder(const struct pp_config *config, unsigned tool, const char *operand,
                                   const struct pp_folder_files *folder)
{
    struct files files = {.most = FILES + folder->n};
    PP_TRY(PP_NEW(&files.v, files.most));
    add_named(&files, config, tool);
    add_checkpoint(&files, config);
    add_list(&files, "--schedule", &config->schedule);
    add_list(&files, "--machine", &config->machine);
    add_times(&files, config, tool);
    add_database(&files, config, tool, operand);
    add_stream(&files, "standard output", STDOUT_FILENO);
    add_stream(&files, "standard error", STDERR_FILENO);
    for (int i = 0; i < folder->n; i++) add(&files, folder->what, folder->folder, folder->names[i], true);
    const pp_status status = compare(&files);
    free(files.v);
    return status;
}

pp_status pp_check_distinct_files(const struct pp_config *config, unsigned tool, const char *operand)
{
    return pp_check_distinct_folder(config, tool, operand, &(struct pp_folder_files){0});
}
