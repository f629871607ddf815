/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures with gnuplot. Each picture is a data file, a script made of a few settings and analysis/plots/NAME.gp, and
 * what gnuplot makes of them, all in one folder, so that the user can change the script and draw again.
 */
#ifndef PP_ANALYSIS_PLOT_H
#define PP_ANALYSIS_PLOT_H

#include "analysis/compare.h"

/* What scripts begin with: by this they are told from those of others. */
#define PP_PLOT_MARK "# Made by ppreport."

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

/* The pictures that are being made. */
struct pp_plots {
    struct pp_db *db;
    const struct pp_table *table; /* of pp_compare_read() */
    const char *folder;
    int room;                     /* how many more scripts pp_plot_NAME() may write (plots.def) */
    int n;                        /* scripts that were written */
    char names[PP_PLOTS_MAX][64]; /* [n] their names */
};

/* Makes all pictures: ms/batch by chunks of all configurations, the others of one row of the table. Makes the folder if
 * it is not there, and removes what was drawn there before. Says where they are. PP_UNSUPPORTED if gnuplot is missing;
 * data and scripts are then written all the same. */
pp_status pp_plot_all(struct pp_db *db, const struct pp_table *table, int64_t row, const char *folder) PP_MUST_CHECK;
/* The folder of pictures without --plots: for the database "runs/pp.db" it is "runs/pp-plots". The caller frees it. */
pp_status pp_plot_folder(const char *database, char **folder) PP_MUST_CHECK;

/* What the pictures of one kind are called: NAME, NAME-2, NAME-3, ... */
struct pp_plot_names {
    const char *picture;
    const char *data[2]; /* ends of the names of a picture's data files, such as "-measured.dat"; NULL: one less */
};
/* The name of the kind's picture `number` (1, 2, ...), which is written to buf and returned. */
enum { PP_PLOT_NAME = 40 };
const char *pp_plot_name(const struct pp_plot_names *of, int number, char buf[PP_PLOT_NAME]);

/* For each row of plots.def: pp_plot_NAME() in plot_NAME.c, which writes data and scripts of its pictures, of one row
 * of the table; pp_plot_NAME_names, which tells all files that these may be; and pp_plot_NAME_gp, the text of
 * plots/NAME.gp. */
#define PP_PLOT(name, most)                                                                                            \
    pp_status pp_plot_##name(struct pp_plots *plots, int64_t row) PP_MUST_CHECK;                                       \
    extern const struct pp_plot_names pp_plot_##name##_names;                                                          \
    extern const char pp_plot_##name##_gp[];
#include "analysis/plots.def"
#undef PP_PLOT

/* Calls the pp_plot_NAME() of one row of plots.def, 0 <= kind < PP_PLOT_KINDS. */
pp_status pp_plot_draw(struct pp_plots *plots, int kind, int64_t row) PP_MUST_CHECK;

/* For plot_*.c. Opens a file of the folder for writing; NULL, with a message, if it cannot. pp_plot_close() reports
 * writes that failed; then there is no such file any more, nor after pp_plot_discard(). */
FILE *pp_plot_open(const struct pp_plots *plots, const char *name);
pp_status pp_plot_close(const struct pp_plots *plots, const char *name, FILE *file) PP_MUST_CHECK;
void pp_plot_discard(const struct pp_plots *plots, const char *name, FILE *file);
/* Opens NAME.gp and writes its first settings: name and title of the picture, and the workload of the row. The caller
 * may write more settings; then pp_plot_finish() adds the template and closes the file, with PP_INTERNAL if plots.def
 * does not allow so many pictures. Instead of that, pp_plot_abandon() leaves no script. */
FILE *pp_plot_begin(struct pp_plots *plots, const char *name, const char *title, int64_t row);
void pp_plot_abandon(const struct pp_plots *plots, const char *name, FILE *script);
/* Writes `prefix`, then `text` as a quoted string of gnuplot. Texts of a database go into a script in no other way,
 * because a database may come from anybody. Templates print such strings `noenhanced`. */
void pp_plot_text(const char *prefix, const char *text, FILE *script);
pp_status pp_plot_finish(struct pp_plots *plots, const char *name, const char *template, FILE *script) PP_MUST_CHECK;

#endif
