/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/picture_files.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const struct pp_plot_names *names;
    int most;
} kinds[PP_PLOT_KINDS] = {
#define PP_PLOT(name, most) {&pp_plot_##name##_names, most},
#include "analysis/plots.def"
#undef PP_PLOT
};

/* The script and what gnuplot makes of it; then come the data. */
static const char *const ends[] = {".gp", ".png", ".svg"};
static const char *const last_words[] = {NULL, "IEND", "</svg>"}; /* of a whole file, but for a few bytes */
enum { ENDS = sizeof ends / sizeof *ends, FILES = ENDS + 2 };
typedef char file_name[PP_FOLDER_FILE_NAME];

/* The files of one picture, number = 1, 2, ...; returns how many. */
static int name_files(const struct pp_plot_names *of, int number, file_name names[FILES])
{
    char picture[PP_PLOT_NAME];
    int n = 0;
    pp_plot_name(of, number, picture);
    for (int i = 0; i < FILES; i++) {
        const char *end = i < ENDS ? ends[i] : of->data[i - ENDS];
        if (end) snprintf(names[n++], sizeof names[0], "/%s%s", picture, end);
    }
    return n;
}

pp_status pp_picture_files(struct pp_folder_files *out)
{
    out->n = 0;
    PP_TRY(PP_NEW(&out->names, PP_PLOTS_MAX * FILES));
    for (int kind = 0; kind < PP_PLOT_KINDS; kind++)
        for (int number = 1; number <= kinds[kind].most; number++)
            out->n += name_files(kinds[kind].names, number, out->names + out->n);
    return PP_OK;
}

static bool is_of_ppreport(const char *script)
{
    char begin[sizeof PP_PLOT_MARK] = "";
    FILE *file = fopen(script, "r");
    if (!file) return false;
    const bool is = fread(begin, 1, sizeof begin - 1, file) == sizeof begin - 1 && strcmp(begin, PP_PLOT_MARK) == 0;
    fclose(file);
    return is;
}

static bool set_path(const char *folder, const char *name, char path[PATH_MAX])
{
    const int length = snprintf(path, PATH_MAX, "%s%s", folder, name);
    return length > 0 && length < PATH_MAX;
}

/* The script, which says whose they are, is the last to go. */
static pp_status remove_files(const char *folder, file_name *names, int n)
{
    char path[PATH_MAX];
    if (!set_path(folder, names[0], path) || !is_of_ppreport(path)) return PP_OK;
    for (int i = n - 1; i >= 0; i--)
        if (set_path(folder, names[i], path) && unlink(path) != 0 && errno != ENOENT)
            return pp_fail(PP_IO, "%s: cannot be replaced: %s: choose another folder with --plots, or --no-plots", path,
                           strerror(errno));
    return PP_OK;
}

pp_status pp_pictures_remove(const char *folder)
{
    file_name names[FILES];
    for (int kind = 0; kind < PP_PLOT_KINDS; kind++)
        for (int number = 1; number <= kinds[kind].most; number++) {
            const int n = name_files(kinds[kind].names, number, names);
            PP_TRY(remove_files(folder, names, n));
        }
    return PP_OK;
}

/* One that is not there is no half. */
static bool is_cut(const char *path, const char *last)
{
    char tail[16] = "";
    FILE *file = fopen(path, "r");
    if (!file) return false;
    (void)fseek(file, -(long)sizeof tail, SEEK_END); /* a shorter file is read from its begin */
    const size_t n = fread(tail, 1, sizeof tail, file);
    (void)fclose(file); /* it was only read */
    return !memmem(tail, n, last, strlen(last));
}

pp_status pp_pictures_check(const struct pp_plots *plots)
{
    char path[PATH_MAX];
    pp_status status = PP_OK;
    for (int i = 0; i < plots->n; i++)
        for (int end = 1; end < ENDS; end++) {
            const char *script = plots->names[i];
            const int length = (int)strlen(script) - (int)strlen(ends[0]);
            const int used = snprintf(path, sizeof path, "%s/%.*s%s", plots->folder, length, script, ends[end]);
            if (used >= PATH_MAX || !is_cut(path, last_words[end])) continue;
            (void)unlink(path);
            status = pp_fail(PP_IO,
                             "%s: gnuplot could not write all of it; is the disk full? Choose another folder with "
                             "--plots, or --no-plots",
                             path);
        }
    return status;
}
