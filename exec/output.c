/* SPDX-License-Identifier: Apache-2.0
 *
 * Results as JSON, tab-separated values or a table. The fields are a contract: docs/FORMATS.md.
 */
#include <inttypes.h>

#include "core/rows.h"
#include "exec/exec.h"

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
    char plan[24], mode[PP_CHECKPOINT_TEXT];
    snprintf(plan, sizeof plan, "%016" PRIx64, r->plan);
    return json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:i, s:b, s:b, s:b, s:i, s:i, s:s, s:o, s:o, s:o, s:o, "
        "s:o, s:o, s:o, s:i, s:I, s:i, s:s}",
        "schedule", r->schedule, "stages", r->point.stages, "virtual", r->point.virtual_stages, "chunks",
        r->point.chunks, "microbatches", r->microbatches, "replicas", r->replicas, "tensor", r->tensor,
        "expert_parallel", r->expert_parallel, "context_parallel", r->context_parallel, "cp_comm_type",
        pp_context_kind_names[r->cp_comm_type], "zero", r->zero, "sequence_parallel", r->sequence_parallel,
        "overlap_grad_reduce", r->overlap_grad_reduce, "overlap_param_gather", r->overlap_param_gather,
        "overlap_tensor_sums", r->overlap_tensor_sums, "tensor_sum_pieces", r->tensor_sum_pieces, "checkpoint",
        pp_checkpoint_text(r->point.checkpoint, mode), "ms_per_batch", pp_json_real(r->stored.ms_per_batch), "bubble",
        pp_json_real(r->stored.bubble), "peak_bytes", pp_json_integers(r->peak_bytes, r->ranks), "process_bytes",
        process_bytes(r), "loss", pp_json_reals(r->losses, r->nlosses), "valid_loss",
        pp_json_reals(r->valid_losses, r->nvalid), "test_loss", pp_json_real(r->stored.test_loss), "first_step",
        r->first_step, "parameters", (json_int_t)r->parameters, "vocabulary", r->vocabulary, "plan", plan);
}

static json_t *make_rows(const struct pp_result *results, int n)
{
    json_t *rows = json_array();
    for (int i = 0; i < n; i++) rows = pp_json_append(rows, make_row(&results[i]));
    return rows;
}

/* The last one; "-" where there is none. */
static void show_loss(const json_t *row, const char *key, char *buf, size_t size)
{
    const json_t *value = json_object_get(row, key);
    if (json_is_array(value)) value = json_array_get(value, json_array_size(value) - 1);
    if (json_is_number(value))
        snprintf(buf, size, "%.4f", json_number_value(value));
    else
        snprintf(buf, size, "-");
}

static const struct pp_row_column columns[] = {
    {"bubble %", "bubble", pp_show_percent}, {"peak MiB", "peak_bytes", pp_show_mib}, {"loss", "loss", show_loss},
    {"valid loss", "valid_loss", show_loss}, {"test loss", "test_loss", show_loss},
};

pp_status pp_results_print(const struct pp_result *results, int n, int format, FILE *out)
{
    json_t *rows = make_rows(results, n);
    if (!rows) return pp_fail(PP_NOMEM, "cannot allocate memory for the results");
    if (format == PP_FORMAT_TABLE) pp_rows_table(rows, columns, sizeof columns / sizeof *columns, out);
    pp_status status = pp_rows_write(rows, format, out);
    json_decref(rows);
    return status;
}
