/* SPDX-License-Identifier: Apache-2.0
 *
 * Configurations of a file (--points), one after the other, where lists would make all combinations: a sample, an order
 * of one's own, or the same one several times.
 *
 * Each line has options as on a command line, of those that may be lists; what it leaves out is as on the command line
 * of the program. A line with lists has their combinations. Empty lines do not count, nor does the rest of a line from
 * a word on that begins with #.
 */
#ifndef PP_CORE_JOB_POINTS_FILE_H
#define PP_CORE_JOB_POINTS_FILE_H

#include "core/job/job.h"

struct pp_points_line; /* its config, to which its points refer */

struct pp_points_file {
    struct pp_point *points;
    int n;
    struct pp_points_line *lines;
};

/* Reads config->points. What *out has is freed by pp_points_file_free(), after a failure, too, and the points refer to
 * it and to `config`. PP_USAGE for what the options of a line say wrong, and for a file without any line, PP_INPUT for
 * one that cannot be opened or is no text, PP_IO; messages name the file and the line. tool: one of enum pp_tool. */
pp_status pp_points_file_read(const struct pp_config *config, unsigned tool, const struct pp_schedules *schedules,
                              struct pp_points_file *out) PP_MUST_CHECK;
/* The config of the first line that counts; borrowed. NULL: there is none. */
const struct pp_config *pp_points_file_first(const struct pp_points_file *file);
void pp_points_file_free(struct pp_points_file *file);

#endif
