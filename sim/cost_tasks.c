/* SPDX-License-Identifier: Apache-2.0
 *
 * The duration of a computation from a profile: measured as a whole, or the sum of kernels, or interpolated; or scaled
 * (cost_scaled.c).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/database/db_query.h"
#include "core/model/task_names.h"
#include "core/plan/longest.h"
#include "sim/cost_search.h"

/* A measured time of the same work with another number of rows. */
struct neighbour {
    int rows;
    int64_t ns; /* 0 = none */
};

/* The search for the measurements with the nearest numbers of rows, below and above `rows`. */
struct bracket {
    size_t prefix; /* length of the signature up to the number of rows */
    int rows, load;
    struct neighbour below, above;
};

static void consider(void *arg, const char *signature, int load, int64_t ns)
{
    struct bracket *b = arg;
    char *end;
    if (load != b->load || ns <= 0 || ns > PP_LONGEST_MEASURED_NS || strlen(signature) <= b->prefix) return;
    long rows = strtol(signature + b->prefix, &end, 10);
    if (*end != '\0' || rows <= 0 || rows > INT32_MAX) return;
    if (rows < b->rows && (b->below.ns == 0 || rows > b->below.rows)) b->below = (struct neighbour){(int)rows, ns};
    if (rows > b->rows && (b->above.ns == 0 || rows < b->above.rows)) b->above = (struct neighbour){(int)rows, ns};
}

pp_status pp_search_program(const struct pp_search *s, const struct pp_class *class, struct pp_program *out)
{
    const struct pp_program_spec spec = pp_phase_spec(&s->job->phase[PP_TRAIN], class->rows);
    return s->job->model_ops->program(s->job->model, class, &spec, out);
}

/* The program for the same work with so many rows. */
static pp_status program_of(const struct pp_search *s, const struct pp_wanted *wanted, int rows, struct pp_program *out)
{
    struct pp_class class = *wanted->class;
    class.rows = rows;
    return pp_search_program(s, &class, out);
}

/* Index in a memory's arrays. */
static int share_of(const struct pp_search *s) { return s->sharers <= PP_SEARCH_SHARERS ? s->sharers : 0; }

pp_status pp_search_begin_sheet(const struct pp_search *s)
{
    struct pp_machine_calls **sheet = &s->memory->sheet[share_of(s)];
    if (*sheet) return PP_OK;
    PP_TRY(PP_NEW(sheet, 1));
    pp_machine_calls_begin(*sheet, s->machine, s->job->model_ops, s->sharers);
    return PP_OK;
}

static double sheet_call_ns(const struct pp_search *s, const struct pp_call *call, int load)
{
    const struct pp_roofline times = pp_machine_roofline(s->memory->sheet[share_of(s)], call);
    return s->machine->call_overhead_ns + (load > 1 ? times.loaded_ns : times.ns);
}

double pp_search_sheet_ns(const struct pp_search *s, const struct pp_program *program, int load)
{
    double ns = 0;
    for (int i = 0; i < program->ncalls; i++) ns += sheet_call_ns(s, &program->calls[i], load);
    return ns;
}

/* The time of so many rows by the data sheet. */
static pp_status sheet_ns(const struct pp_search *s, const struct pp_wanted *wanted, int rows, int load, double *ns)
{
    struct pp_program program;
    PP_TRY(program_of(s, wanted, rows, &program));
    *ns = pp_search_sheet_ns(s, &program, load);
    pp_program_free(&program);
    return PP_OK;
}

/* Interpolates; 0 if a side is missing. A GPU computes products in tiles, so its time grows in steps of rows, not
 * evenly: the data sheet's times say how far from one side to the other. Else the rows do. */
static pp_status between(const struct pp_search *s, const struct pp_wanted *wanted, const struct bracket *b,
                         int64_t *ns)
{
    const int rows[] = {b->below.rows, b->rows, b->above.rows};
    double time[] = {rows[0], rows[1], rows[2]}, part = (time[1] - time[0]) / (time[2] - time[0]);
    *ns = 0;
    if (b->below.ns == 0 || b->above.ns == 0) return PP_OK;
    for (int i = 0; i < 3 && s->gpu; i++) PP_TRY(sheet_ns(s, wanted, rows[i], b->load, &time[i]));
    if (time[2] > time[0]) part = fmin(fmax((time[1] - time[0]) / (time[2] - time[0]), 0), 1);
    *ns = llround((1 - part) * (double)b->below.ns + part * (double)b->above.ns);
    return PP_OK;
}

/* Interpolates between the nearest measured numbers of rows; *ns = 0 if there is none below or none above. */
static pp_status interpolate(const struct pp_search *s, const struct pp_wanted *wanted, int load, int64_t *ns)
{
    const char *signature = wanted->program->signature, *rows = pp_signature_rows(signature);
    const struct pp_db_setting setting = pp_search_setting(s);
    char prefix[PP_SIGNATURE_BYTES];
    *ns = 0;
    if (!rows) return PP_OK;
    struct bracket b = {.prefix = (size_t)(rows - signature), .rows = atoi(rows), .load = load};
    snprintf(prefix, sizeof prefix, "%.*s", (int)b.prefix, signature);
    PP_TRY(pp_db_each_task(s->db, &setting, prefix, consider, &b));
    return between(s, wanted, &b, ns);
}

/* Finds the mean time of a kernel, or of PP_SAMPLE_GAP. */
static pp_status find_mean(const struct pp_search *s, const char *name, int load, int64_t *ns, bool *found)
{
    const struct pp_db_setting setting = pp_search_setting(s);
    PP_TRY(pp_db_find_kernel_mean(s->db, &setting, name, load, ns, found));
    return *found
               ? pp_check_figure((double)*ns, -PP_LONGEST_MEASURED_NS, PP_LONGEST_MEASURED_NS, "ns of \"%s\" are", name)
               : PP_OK;
}

/* Kernels of a program that were found already: layers repeat them. */
struct known_kernels {
    int n;
    struct {
        char name[PP_CALL_NAME];
        int64_t ns;
    } kernel[32];
};

/* Of a kernel that writes gradients, where only adding to them was measured, or the other way round: that in proportion
 * to both by the data sheet. With one microbatch none adds. */
static pp_status other_mean(const struct pp_search *s, const struct pp_call *call, const char *name, int load,
                            int64_t *ns, bool *found)
{
    struct pp_call other = *call;
    char others_name[PP_CALL_NAME];
    other.adds = !call->adds;
    s->job->model_ops->call_name(&other, others_name, sizeof others_name);
    if (strcmp(name, others_name) == 0) return PP_OK; /* it makes no gradients */
    PP_TRY(find_mean(s, others_name, load, ns, found));
    if (*found) *ns = llround((double)*ns * sheet_call_ns(s, call, load) / sheet_call_ns(s, &other, load));
    return PP_OK;
}

static pp_status kernel_mean(const struct pp_search *s, const struct pp_call *call, int load,
                             struct known_kernels *known, int64_t *ns, bool *found)
{
    char name[PP_CALL_NAME];
    *found = true;
    s->job->model_ops->call_name(call, name, sizeof name);
    for (int i = 0; i < known->n; i++) {
        if (strcmp(known->kernel[i].name, name) != 0) continue;
        *ns = known->kernel[i].ns;
        return PP_OK;
    }
    PP_TRY(find_mean(s, name, load, ns, found));
    if (!*found) PP_TRY(other_mean(s, call, name, load, ns, found));
    if (!*found || known->n == sizeof known->kernel / sizeof *known->kernel) return PP_OK;
    memcpy(known->kernel[known->n].name, name, sizeof name);
    known->kernel[known->n++].ns = *ns;
    return PP_OK;
}

/* The sum of the program's kernels, as measured in other tasks, and of the gap for each call; but at least its longest
 * kernel, since in a noisy profile of short kernels the gap can be so far below zero that the sum is, too. *ns = 0 if a
 * kernel was not measured. */
static pp_status add_kernels(const struct pp_search *s, const struct pp_program *program, int load, int64_t *ns)
{
    struct known_kernels known = {0};
    int64_t each = 0, gap = 0;
    double sum = 0, longest = 0;
    bool found = program->ncalls > 0;
    *ns = 0;
    for (int i = 0; i < program->ncalls && found; i++) {
        if (s->job->model_ops->call_join(&program->calls[i]).op != PP_JOIN_NONE) continue;
        PP_TRY(kernel_mean(s, &program->calls[i], load, &known, &each, &found));
        sum += (double)each;
        longest = fmax(longest, (double)each);
    }
    if (found) PP_TRY(find_mean(s, PP_SAMPLE_GAP, load, &gap, &found));
    sum = fmax(sum + (double)gap * program->ncalls, longest);
    if (found && sum >= 1 && sum <= PP_LONGEST_MEASURED_NS) *ns = llround(sum);
    return PP_OK;
}

/* The sum of kernels for the same work with `rows` rows. */
static pp_status add_kernels_of(const struct pp_search *s, const struct pp_wanted *wanted, int rows, int load,
                                struct neighbour *out)
{
    struct pp_program program;
    out->rows = rows;
    PP_TRY(program_of(s, wanted, rows, &program));
    pp_status status = add_kernels(s, &program, load, &out->ns);
    pp_program_free(&program);
    return status;
}

static void collect(void *arg, const char *signature, int load, int64_t ns)
{
    struct pp_row_counts *counts = arg;
    const char *digits = pp_signature_rows(signature);
    const int rows = digits ? atoi(digits) : 0;
    int at = 0;
    (void)load, (void)ns;
    while (at < counts->n && counts->v[at] < rows) at++;
    if (rows <= 0 || (at < counts->n && counts->v[at] == rows)) return;
    if (counts->n == sizeof counts->v / sizeof *counts->v) return;
    memmove(&counts->v[at + 1], &counts->v[at], (size_t)(counts->n++ - at) * sizeof *counts->v);
    counts->v[at] = rows;
}

/* All tasks are asked for once for a whole sweep. */
static pp_status find_rows(const struct pp_search *s, struct pp_row_counts *out)
{
    const struct pp_db_setting setting = pp_search_setting(s);
    char question[96];
    snprintf(question, sizeof question, "rows %s %d %d", s->device, s->threads, s->sharers);
    pp_db_lock(s->db);
    const bool known = pp_db_knows(s->db, question, out, sizeof *out);
    pp_db_unlock(s->db);
    if (known) return PP_OK;
    out->known = true;
    PP_TRY(pp_db_each_task(s->db, &setting, "", collect, out));
    pp_db_lock(s->db);
    pp_db_keep(s->db, question, out, sizeof *out);
    pp_db_unlock(s->db);
    return PP_OK;
}

pp_status pp_search_rows(const struct pp_search *s, const struct pp_row_counts **out)
{
    struct pp_row_counts *counts = &s->memory->rows[share_of(s)];
    *out = counts;
    return counts->known ? PP_OK : find_rows(s, counts);
}

/* Interpolates between two sums of kernels, with the nearest numbers of rows below and above for which there is a sum;
 * *ns = 0 if there is none on one side. */
static pp_status interpolate_kernels(const struct pp_search *s, const struct pp_wanted *wanted, int load, int64_t *ns)
{
    const struct pp_row_counts *counts;
    struct bracket b = {.rows = wanted->class->rows, .load = load};
    PP_TRY(pp_search_rows(s, &counts));
    for (int i = counts->n - 1; i >= 0 && b.below.ns == 0; i--)
        if (counts->v[i] < b.rows) PP_TRY(add_kernels_of(s, wanted, counts->v[i], load, &b.below));
    for (int i = 0; i < counts->n && b.above.ns == 0; i++)
        if (counts->v[i] > b.rows) PP_TRY(add_kernels_of(s, wanted, counts->v[i], load, &b.above));
    return between(s, wanted, &b, ns);
}

static pp_status find_task(const struct pp_search *s, const char *signature, int load, int64_t *ns, bool *found)
{
    const struct pp_db_setting setting = pp_search_setting(s);
    PP_TRY(pp_db_find_task(s->db, &setting, signature, load, ns, found));
    return *found ? pp_check_figure((double)*ns, 1, PP_LONGEST_MEASURED_NS, "ns of \"%s\" are", signature) : PP_OK;
}

/* Of a backward that writes gradients the time of the one that adds to them, or the other way round, in proportion to
 * both by the data sheet. *ns = 0 if there is none. */
static pp_status find_other_backward(const struct pp_search *s, const struct pp_wanted *wanted, int load, int64_t *ns)
{
    struct pp_class class = *wanted->class;
    struct pp_program program;
    bool found;
    *ns = 0;
    if (!pp_makes_gradients(class.kind)) return PP_OK;
    class.adds = !class.adds;
    PP_TRY(pp_search_program(s, &class, &program));
    pp_status status = find_task(s, program.signature, load, ns, &found);
    if (status == PP_OK && found)
        *ns =
            llround((double)*ns * pp_search_sheet_ns(s, wanted->program, load) / pp_search_sheet_ns(s, &program, load));
    pp_program_free(&program);
    return status;
}

pp_status pp_search_exact(const struct pp_search *s, const struct pp_wanted *wanted, int load, int64_t *ns, int *source)
{
    bool found;
    *source = PP_COST_PROFILE;
    PP_TRY(find_task(s, wanted->program->signature, load, ns, &found));
    if (found) return PP_OK;
    *source = PP_COST_KERNELS;
    PP_TRY(find_other_backward(s, wanted, load, ns));
    return *ns > 0 ? PP_OK : add_kernels(s, wanted->program, load, ns);
}

pp_status pp_search_measured(const struct pp_search *s, const struct pp_wanted *wanted, int load, int64_t *ns,
                             int *source)
{
    const struct pp_row_counts *counts;
    PP_TRY(pp_search_exact(s, wanted, load, ns, source));
    if (*ns > 0) return PP_OK;
    *source = PP_COST_INTERPOLATED;
    PP_TRY(pp_search_rows(s, &counts));
    if (wanted->class->rows == 0 || counts->n < 2) return PP_OK;
    PP_TRY(interpolate(s, wanted, load, ns));
    return *ns == 0 ? interpolate_kernels(s, wanted, load, ns) : PP_OK;
}
