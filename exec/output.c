/* SPDX-License-Identifier: Apache-2.0
 *
 * Results as JSON, tab-separated values or a table. The fields are a contract: docs/FORMATS.md.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/rows.h"
#include "exec/exec.h"

static json_t *reals(const double *values, int n)
{
    json_t *array = json_array();
    for (int i = 0; i < n; i++) array = pp_json_append(array, pp_json_real(values[i]));
    return array;
}

static json_t *integers(const int64_t *values, int n)
{
    json_t *array = json_array();
    for (int i = 0; i < n; i++) array = pp_json_append(array, json_integer(values[i]));
    return array;
}

/* Of the largest process; null where the system does not tell. */
static json_t *process_bytes(const struct pp_result *r)
{
    int64_t most = 0;
    for (int i = 0; i < r->workers; i++)
        if (r->process_bytes[i] > most) most = r->process_bytes[i];
    return most > 0 ? json_integer(most) : json_null();
}

static json_t *make_row(const struct pp_result *r)
{
    char plan[24];
    snprintf(plan, sizeof plan, "%016" PRIx64, r->plan);
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:I, s:i, s:s}",
                     "schedule", r->schedule, "stages", r->point.stages, "virtual", r->point.virtual_stages, "chunks",
                     r->point.chunks, "microbatches", r->microbatches, "replicas", r->replicas, "ms_per_batch",
                     pp_json_real(r->stored.ms_per_batch), "bubble", pp_json_real(r->stored.bubble), "peak_bytes",
                     integers(r->peak_bytes, r->ranks), "process_bytes", process_bytes(r), "loss",
                     reals(r->losses, r->nlosses), "valid_loss", reals(r->valid_losses, r->nvalid), "test_loss",
                     pp_json_real(r->stored.test_loss), "first_step", r->first_step, "parameters",
                     (json_int_t)r->parameters, "vocabulary", r->vocabulary, "plan", plan);
}

static json_t *make_rows(const struct pp_result *results, int n)
{
    json_t *rows = json_array();
    for (int i = 0; i < n; i++) rows = pp_json_append(rows, make_row(&results[i]));
    return rows;
}

static void print_figure(double value, int width, int digits, FILE *out)
{
    if (isnan(value))
        fprintf(out, "  %*s", width, "-");
    else
        fprintf(out, "  %*.*f", width, digits, value);
}

static void print_table(const struct pp_result *results, int n, FILE *out)
{
    int width = (int)strlen("schedule");
    for (int i = 0; i < n; i++)
        if ((int)strlen(results[i].schedule) > width) width = (int)strlen(results[i].schedule);
    fprintf(out,
            "%-*s   P   V  chunks    M   D    ms/batch  bubble %%    peak MiB        loss  valid loss   test loss\n",
            width, "schedule");
    for (int i = 0; i < n; i++) {
        const struct pp_result *r = &results[i];
        int64_t peak = 0;
        for (int rank = 0; rank < r->ranks; rank++)
            if (r->peak_bytes[rank] > peak) peak = r->peak_bytes[rank];
        fprintf(out, "%-*s %3d %3d %7d %4d %3d", width, r->schedule, r->point.stages, r->point.virtual_stages,
                r->point.chunks, r->microbatches, r->replicas);
        print_figure(r->stored.ms_per_batch, 10, 3, out);
        print_figure(100 * r->stored.bubble, 8, 2, out);
        print_figure((double)peak / (1 << 20), 10, 1, out);
        print_figure(r->nlosses ? r->losses[r->nlosses - 1] : NAN, 10, 4, out);
        print_figure(r->nvalid ? r->valid_losses[r->nvalid - 1] : NAN, 10, 4, out);
        print_figure(r->stored.test_loss, 10, 4, out);
        fputc('\n', out);
    }
}

pp_status pp_results_print(const struct pp_result *results, int n, int format, FILE *out)
{
    json_t *rows = make_rows(results, n);
    if (!rows) return pp_fail(PP_NOMEM, "cannot allocate memory for the results");
    if (format == PP_FORMAT_TABLE) print_table(results, n, out);
    pp_status status = pp_rows_write(rows, format, out);
    json_decref(rows);
    return status;
}
