/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/plot.h"

#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "analysis/picture_files.h"
#include "core/base/log.h"
#include "core/base/new_file.h"
#include "core/base/printable.h"

extern const char pp_plot_style_gp[];
extern char **environ;

static const struct {
    pp_status (*draw)(struct pp_plots *plots, int64_t row);
    int most;
} kinds[PP_PLOT_KINDS] = {
#define PP_PLOT(name, most) {pp_plot_##name, most},
#include "analysis/plots.def"
#undef PP_PLOT
};

static char *path_of(const struct pp_plots *plots, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", plots->folder, name) < 0 ? NULL : path;
}

static pp_status failed(const struct pp_plots *plots, const char *name)
{
    return pp_fail(PP_IO, "%s/%s: %s: choose another folder with --plots, or --no-plots", plots->folder, name,
                   pp_write_error());
}

/* Without asking for memory, of which there may be none left. */
static void remove_half(const struct pp_plots *plots, const char *name)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", plots->folder, name) < PATH_MAX) (void)unlink(path);
}

FILE *pp_plot_open(const struct pp_plots *plots, const char *name)
{
    char *path = path_of(plots, name);
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) (void)failed(plots, name);
    free(path);
    return file;
}

pp_status pp_plot_close(const struct pp_plots *plots, const char *name, FILE *file)
{
    const bool wrong = ferror(file);
    errno = 0;
    if (fclose(file) == 0 && !wrong) return PP_OK;
    const pp_status status = failed(plots, name);
    remove_half(plots, name);
    return status;
}

void pp_plot_discard(const struct pp_plots *plots, const char *name, FILE *file)
{
    (void)fclose(file); /* nobody wants it any more */
    remove_half(plots, name);
}

const char *pp_plot_name(const struct pp_plot_names *of, int number, char buf[PP_PLOT_NAME])
{
    const int n = snprintf(buf, PP_PLOT_NAME, "%s", of->picture);
    if (number > 1) snprintf(buf + n, PP_PLOT_NAME - (size_t)n, "-%d", number);
    return buf;
}

/* In single quotes gnuplot takes all characters as they are, but for these quotes themselves and ends of lines. */
void pp_plot_text(const char *prefix, const char *text, FILE *script)
{
    char printable[PP_ABOUT_TEXT]; /* longer than any title */
    snprintf(printable, sizeof printable, "%s", text);
    fprintf(script, "%s'", prefix);
    for (const char *c = pp_printable(printable); *c; c++) fputs(*c == '\'' ? "''" : (char[]){*c, '\0'}, script);
    fputc('\'', script);
}

FILE *pp_plot_begin(struct pp_plots *plots, const char *name, const char *title, int64_t row)
{
    char file_name[80], about[PP_ABOUT_TEXT];
    snprintf(file_name, sizeof file_name, "%s.gp", name);
    FILE *script = pp_plot_open(plots, file_name);
    if (!script) return NULL;
    fprintf(script, PP_PLOT_MARK " To draw again: gnuplot %s\nreset session\n", file_name);
    pp_plot_text("name = ", name, script);
    pp_plot_text("\ntitle = ", title, script);
    pp_plot_text("\nworkload = ", pp_compare_about(plots->table, row, about), script);
    fputc('\n', script);
    return script;
}

void pp_plot_abandon(const struct pp_plots *plots, const char *name, FILE *script)
{
    char file_name[80];
    snprintf(file_name, sizeof file_name, "%s.gp", name);
    pp_plot_discard(plots, file_name, script);
}

pp_status pp_plot_finish(struct pp_plots *plots, const char *name, const char *template, FILE *script)
{
    char file_name[80];
    snprintf(file_name, sizeof file_name, "%s.gp", name);
    fprintf(script, "\n%s\n%s", pp_plot_style_gp, template);
    PP_TRY(pp_plot_close(plots, file_name, script));
    if (plots->room-- < 1) return pp_fail(PP_INTERNAL, "%s: plots.def has room for fewer pictures", file_name);
    snprintf(plots->names[plots->n++], sizeof plots->names[0], "%.60s.gp", name);
    return PP_OK;
}

/* This one, but in UTF-8, as the scripts' texts are: gnuplot 6 warns of other locales. The strings stay environ's. */
static pp_status utf8_environment(char ***out)
{
    static char locale[] = "LC_ALL=C.UTF-8";
    size_t n = 0, used = 0;
    while (environ[n]) n++;
    PP_TRY(PP_NEW(out, n + 2));
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], "LC_ALL=", 7) != 0) (*out)[used++] = environ[i];
    (*out)[used] = locale;
    return PP_OK;
}

/* One gnuplot draws all scripts, in the folder where their data is. */
static pp_status run_gnuplot(const struct pp_plots *plots)
{
    char **environment;
    PP_TRY(utf8_environment(&environment));
    char *arguments[PP_PLOTS_MAX + 2] = {(char[]){"gnuplot"}};
    for (int i = 0; i < plots->n; i++) arguments[i + 1] = (char *)plots->names[i];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    pid_t pid;
    int error = posix_spawn_file_actions_addchdir_np(&actions, plots->folder), ended = 0;
    if (!error) error = posix_spawnp(&pid, "gnuplot", &actions, NULL, arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
    free(environment);
    if (error)
        return pp_fail(
            PP_UNSUPPORTED,
            "no pictures: gnuplot cannot be started (%s): install gnuplot-nox and run again, or draw the scripts in "
            "%s elsewhere",
            strerror(error), plots->folder);
    while (waitpid(pid, &ended, 0) < 0 && errno == EINTR) {
    }
    if (ended == 0) return PP_OK;
    return pp_fail(PP_UNSUPPORTED, "gnuplot could not draw the pictures in %s; its message stands above",
                   plots->folder);
}

pp_status pp_plot_folder(const char *database, char **folder)
{
    size_t length = strlen(database);
    if (length > 3 && strcmp(database + length - 3, ".db") == 0) length -= 3;
    if (asprintf(folder, "%.*s-plots", (int)length, database) >= 0) return PP_OK;
    *folder = NULL;
    return pp_fail(PP_NOMEM, "there is not enough memory for a file name");
}

pp_status pp_plot_draw(struct pp_plots *plots, int kind, int64_t row)
{
    plots->room = kinds[kind].most;
    return kinds[kind].draw(plots, row);
}

pp_status pp_plot_all(struct pp_db *db, const struct pp_table *table, int64_t row, const char *folder)
{
    struct pp_plots plots = {.db = db, .table = table, .folder = folder};
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) return failed(&plots, "");
    PP_TRY(pp_pictures_remove(folder));
    for (int kind = 0; kind < PP_PLOT_KINDS; kind++) PP_TRY(pp_plot_draw(&plots, kind, row));
    if (!plots.n) {
        pp_info("There are no pictures: neither times of steps nor tasks are known.");
        return PP_OK;
    }
    PP_TRY(run_gnuplot(&plots));
    PP_TRY(pp_pictures_check(&plots));
    pp_info("Pictures are in %s/.", folder);
    return PP_OK;
}
