/* SPDX-License-Identifier: Apache-2.0
 *
 * Remarks of ppsim on standard error about a sweep as a whole, over all machines: what it adds to the database,
 * configurations that were left out, checkpoints that save nothing, and FP8 without products. Remarks about each
 * machine: sim/remarks.h. This is a part of the program, since only programs print.
 */
#ifndef PP_SIM_REMARKS_ALL_H
#define PP_SIM_REMARKS_ALL_H

#include "sim/predict_points.h"
#include "sim/ways.h"

struct pp_left_out; /* all configurations that are impossible for the same reason */

/* To begin with, set all to zero. Release with pp_remarks_all_free(). */
struct pp_remarks_all {
    struct pp_left_out *left_out; /* list, in the order of the first configuration of each reason */
    int said[PP_POINT_REMARKS];   /* number of rows that are shown with each of these remarks */
};

/* Text for messages: pp_point_text(), and the machine (NULL: only one is predicted for). Returns buf. */
enum { PP_POINT_ON_TEXT = PP_POINT_TEXT + 48 };
const char *pp_point_on_text(const struct pp_point *point, const char *machine, char buf[PP_POINT_ON_TEXT]);

/* Before the first prediction: warns if the predictions of all ways, for each of `ntargets` targets, will add much to
 * the database `path`. */
void pp_remarks_all_database(const char *path, const struct pp_way *ways, int nways, int ntargets);

/* Takes a remark about a row, which may be "". The first other one of its kind is printed at once. */
void pp_remarks_all_take(struct pp_remarks_all *r, enum pp_point_remark kind, const char *remark);

/* Notes an impossible configuration, and the reason. Two reasons are the same if they differ only in numbers (a number
 * in a name, as in "h100", is part of the name). machine: NULL if only one is predicted for. The remark will name the
 * machine if all configurations of the reason are on it, unless the reason names it already. The machine and the texts
 * of the point are borrowed. PP_NOMEM. */
pp_status pp_remarks_all_leave_out(struct pp_remarks_all *r, const struct pp_point *point, const char *machine,
                                   const char *why) PP_MUST_CHECK;

/* After all predictions: prints what was left out and why; and the number of remarks that were printed once. own:
 * --auto has chosen what to try, and some of that is possible; then reasons that are about its choices alone, but for
 * options that were given, are only counted. */
void pp_remarks_all_left_out(const struct pp_remarks_all *r, const struct pp_config *config, bool own);
void pp_remarks_all_totals(const struct pp_remarks_all *r);
void pp_remarks_all_free(struct pp_remarks_all *r);

#endif
