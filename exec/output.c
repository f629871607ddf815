/* SPDX-License-Identifier: Apache-2.0
 *
 * Results as JSON, tab-separated values or a table. The fields are a contract: docs/FORMATS.md.
 */
#include <inttypes.h>

#include "core/job/rows.h"
#include "core/options/devices.h"
#include "exec/exec.h"

/* The resident memory of the largest process; null where the system does not tell. */
static json_t *process_bytes(const struct pp_result *r)
{
    int64_t most = 0;
    for (int i = 0; i < r->workers; i++)
        if (r->process_bytes[i] > most) most = r->process_bytes[i];
    return most > 0 ? json_integer(most) : json_null();
}

static void set(json_t **row, const char *key, json_t *value) { *row = pp_json_set(*row, key, value); }

static void set_measurements(json_t **row, const struct pp_result *r)
{
    set(row, "ms_per_batch", pp_json_real(r->stored.ms_per_batch));
    set(row, "bubble", pp_json_real(r->stored.bubble));
    set(row, "peak_bytes", pp_json_integers(r->peak_bytes, r->ranks));
    set(row, "process_bytes", process_bytes(r));
    set(row, "taken", pp_json_real(r->taken));
    set(row, "loss", pp_json_reals(r->losses, r->nlosses));
    set(row, "valid_loss", pp_json_reals(r->valid_losses, r->nvalid));
    set(row, "test_loss", pp_json_real(r->stored.test_loss));
}

static json_t *make_row(const struct pp_result *r)
{
    char plan[24];
    json_t *row = json_copy(r->configuration);
    set_measurements(&row, r);
    snprintf(plan, sizeof plan, "%016" PRIx64, r->plan);
    set(&row, "first_step", json_integer(r->first_step));
    set(&row, "first_epoch", json_integer(r->first_epoch));
    set(&row, "parameters", json_integer(r->parameters));
    set(&row, "vocabulary", json_integer(r->vocabulary));
    set(&row, "plan", json_string(plan));
    return row;
}

static json_t *make_rows(const struct pp_result *results, int n)
{
    json_t *rows = json_array();
    for (int i = 0; i < n; i++) rows = pp_json_append(rows, make_row(&results[i]));
    return rows;
}

/* The last one; "-" where there is none. JSON has null for a loss that is no finite number, people see "nan": otherwise
 * the column of a training that has diverged would be empty, and left out. */
static void show_loss(const json_t *row, const char *key, char *buf, size_t size)
{
    const json_t *value = json_object_get(row, key);
    const bool several = json_is_array(value);
    if (several) value = json_array_get(value, json_array_size(value) - 1);
    if (json_is_number(value))
        snprintf(buf, size, "%.4f", json_number_value(value));
    else
        snprintf(buf, size, "%s", several && value ? "nan" : "-");
}

/* Losses are the last columns. */
enum { LOSSES = 3 };
static const struct pp_row_column columns[] = {
    {{"bubble", "%"}, "bubble", pp_show_percent},
    {{"peak"}, "peak_bytes", .bytes = pp_row_most},
    {{"loss"}, "loss", show_loss},
    {{"valid loss"}, "valid_loss", show_loss},
    {{"test loss"}, "test_loss", show_loss},
};

pp_status pp_results_print(const struct pp_result *results, int n, const struct pp_config *config, FILE *out)
{
    json_t *rows = make_rows(results, n);
    if (!rows) return pp_fail(PP_NOMEM, "cannot allocate memory for the results");
    const int losses = pp_device_kind(config->device)->waits ? 0 : LOSSES; /* a device that only waits learns nothing */
    if (config->format == PP_FORMAT_TABLE)
        pp_rows_table(rows, config, columns, (int)(sizeof columns / sizeof *columns) - LOSSES + losses, out);
    pp_status status = pp_rows_write(rows, config->format, out);
    json_decref(rows);
    return status;
}
