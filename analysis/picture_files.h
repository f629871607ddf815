/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of the folder of pictures, by what plot_*.c and plots.def say of their names.
 */
#ifndef PP_ANALYSIS_PICTURE_FILES_H
#define PP_ANALYSIS_PICTURE_FILES_H

#include "analysis/plot.h"
#include "core/options/distinct_files.h"

/* All that pp_plot_all() may write to the folder; out->what and out->folder are the caller's, who frees out->names. */
pp_status pp_picture_files(struct pp_folder_files *out) PP_MUST_CHECK;
/* Removes the pictures of earlier reports, with their scripts and data: nothing of another run stays beside what is
 * drawn next. A picture whose script is not ppreport's stays. */
pp_status pp_pictures_remove(const char *folder) PP_MUST_CHECK;
/* Did gnuplot write the pictures of all scripts to their ends? Else PP_IO, and what has no end is removed:
 * where a disk is full, gnuplot says nothing, and its exit status is 0. */
pp_status pp_pictures_check(const struct pp_plots *plots) PP_MUST_CHECK;

#endif
