/* SPDX-License-Identifier: Apache-2.0
 *
 * What ppsim says on standard error of a sweep as a whole, over all machines: what was left out, and whose checkpoints
 * save nothing. sim/remarks.h has what is said of each machine. A part of the program, as only programs print.
 */
#ifndef PP_SIM_REMARKS_ALL_H
#define PP_SIM_REMARKS_ALL_H

#include "core/job.h"

struct pp_left_out; /* configurations that are impossible for one reason */

/* Begins with zeros; ends with pp_remarks_all_free(). */
struct pp_remarks_all {
    struct pp_left_out *left_out; /* by their first */
    int checkpoints;              /* configurations whose checkpoints save nothing */
};

/* pp_point_text(), and the machine, if several are compared (else NULL). Returns buf. */
enum { PP_POINT_ON_TEXT = PP_POINT_TEXT + 48 };
const char *pp_point_on_text(const struct pp_point *point, const char *machine, char buf[PP_POINT_ON_TEXT]);

/* pp_checkpoint_remark() of a configuration; "": nothing is to be said. The first is told at once. */
void pp_remarks_all_checkpoint(struct pp_remarks_all *r, const char *remark);

/* Notes an impossible configuration, and why. Reasons that differ in numbers alone are one; but a number in a name, as
 * that of a machine, is a part of the name. The machine (NULL: there is one) is told where all of a reason are on it,
 * unless the reason names it. It and the point's texts are borrowed. */
pp_status pp_remarks_all_leave_out(struct pp_remarks_all *r, const struct pp_point *point, const char *machine,
                                   const char *why) PP_MUST_CHECK;

/* After all predictions: what was left out; then how many there were of what was told once. */
void pp_remarks_all_left_out(const struct pp_remarks_all *r);
void pp_remarks_all_totals(const struct pp_remarks_all *r);
void pp_remarks_all_free(struct pp_remarks_all *r);

#endif
