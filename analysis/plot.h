/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures with gnuplot. Each picture is a data file, a script made of a few settings and analysis/plots/NAME.gp, and
 * what gnuplot makes of them, all in one folder, so that the user can change the script and draw again.
 */
#ifndef PP_ANALYSIS_PLOT_H
#define PP_ANALYSIS_PLOT_H

#include "analysis/compare.h"

#define PP_PLOT(name, most) +1
enum {
    PP_PLOT_KINDS = 0
#include "analysis/plots.def"
};
#undef PP_PLOT
#define PP_PLOT(name, most) +(most)
enum {
    PP_PLOTS_MAX = 0
#include "analysis/plots.def"
};
#undef PP_PLOT

/* Pictures on their way. */
struct pp_plots {
    struct pp_db *db;
    const struct pp_table *table; /* of pp_compare_read() */
    const char *folder;
    int room; /* scripts that the kind at work may still write */
    int n;
    char names[PP_PLOTS_MAX][64]; /* scripts that were written */
};

/* Makes all pictures: ms/batch by chunks for every configuration, the others for `row` of the table. folder: made if it
 * is not there. PP_UNSUPPORTED if gnuplot is missing; the data and scripts are there all the same. */
pp_status pp_plot_all(struct pp_db *db, const struct pp_table *table, int64_t row, const char *folder) PP_MUST_CHECK;
/* Where pictures go if nothing else is asked: "runs/pp.db" gives "runs/pp-plots". The caller's to free. */
pp_status pp_plot_folder(const char *database, char **folder) PP_MUST_CHECK;

/* plot_NAME.c of each row of plots.def: the data and scripts of its pictures, for `row` of the table; and its template,
 * plots/NAME.gp. */
#define PP_PLOT(name, most)                                                                                            \
    pp_status pp_plot_##name(struct pp_plots *plots, int64_t row) PP_MUST_CHECK;                                       \
    extern const char pp_plot_##name##_gp[];
#include "analysis/plots.def"
#undef PP_PLOT

/* The pictures of one kind, 0 <= kind < PP_PLOT_KINDS. */
pp_status pp_plot_draw(struct pp_plots *plots, int kind, int64_t row) PP_MUST_CHECK;

/* For plot_*.c. A file of the folder, opened for writing; NULL with a message. close reports a failed write. */
FILE *pp_plot_open(const struct pp_plots *plots, const char *name);
pp_status pp_plot_close(const struct pp_plots *plots, const char *name, FILE *file) PP_MUST_CHECK;
/* Begins NAME.gp: name and title of the picture, workload of the row of the table. More settings may follow, then
 * finish adds the template; where the kind has no room for one more, PP_INTERNAL, and the file is closed. */
FILE *pp_plot_begin(struct pp_plots *plots, const char *name, const char *title, int64_t row);
/* Writes `prefix`, then the text as a string of gnuplot: the only way for text of a database into a script, for that
 * may be anybody's. Templates print such strings `noenhanced`. */
void pp_plot_text(const char *prefix, const char *text, FILE *script);
pp_status pp_plot_finish(struct pp_plots *plots, const char *name, const char *template, FILE *script) PP_MUST_CHECK;

#endif
