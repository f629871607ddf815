/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/picture_files.h"

#include <stdio.h>

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
enum { ENDS = sizeof ends / sizeof *ends, FILES = ENDS + 2 };
typedef char file_name[PP_FOLDER_FILE_NAME];

/* The files of one picture, number = 1, 2, ...; returns how many. */
static int name_files(const struct pp_plot_names *of, int number, file_name names[FILES])
{
    char which[16] = "";
    int n = 0;
    if (number > 1) snprintf(which, sizeof which, "-%d", number);
    for (int i = 0; i < FILES; i++) {
        const char *end = i < ENDS ? ends[i] : of->data[i - ENDS];
        if (end) snprintf(names[n++], sizeof names[0], "/%s%s%s", of->picture, which, end);
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
