/* SPDX-License-Identifier: Apache-2.0
 *
 * What the first process tells of a running configuration: a header, the tutorials' log lines, and rows in the
 * database. It reads the journal while the workers go on.
 */
#ifndef PP_EXEC_REPORT_H
#define PP_EXEC_REPORT_H

#include "exec/exec.h"

struct pp_report {
    struct pp_exec *exec;
    const struct pp_session *session;
    int64_t run_id;
    int64_t taken;           /* records of the journal */
    struct pp_totals totals; /* of a resumed run they begin with those of its checkpoint */
    int64_t interval_ns;     /* time of the steps of this run since the last log line */
    int interval_timed;      /* number of these steps */
    bool diverged;           /* a loss was not finite, and a warning has said so */
    bool lost;               /* the database failed: nothing more is stored */
};

/* What will run, and where: a line about each. */
void pp_report_header(const struct pp_exec *exec, const struct pp_session *session);

/* Prints the header, and begins the run in the database. */
pp_status pp_report_begin(struct pp_report *report, struct pp_exec *exec,
                          const struct pp_session *session) PP_MUST_CHECK;
/* Takes what the journal has published since. Where the database fails (a full disk) it says so once and stores
 * nothing more: training goes on. */
void pp_report_update(struct pp_report *report);
/* Stores how the run ended ("ok", "interrupted", "failed: ...") and, with a result, traces and memory. PP_IO also where
 * the database has failed before. */
pp_status pp_report_end(struct pp_report *report, const char *status, const struct pp_result *result) PP_MUST_CHECK;

/* The figures of a finished run. */
pp_status pp_result_make(const struct pp_session *session, struct pp_result *out) PP_MUST_CHECK;

#endif
