/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/alone.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/log.h"

static int64_t run_of(const struct pp_table *table, int64_t row, bool predicted)
{
    const struct pp_pair pair = pp_compare_pair(table, row);
    return predicted ? pair.predicted : pair.measured;
}

/* Was the row's configuration predicted and not measured, or measured and not predicted? */
static bool is_alone(const struct pp_table *table, int64_t row, bool predicted)
{
    return run_of(table, row, predicted) >= 0 && run_of(table, row, !predicted) < 0;
}

static int64_t count_alone(const struct pp_table *table, bool predicted)
{
    int64_t n = 0;
    for (int64_t row = 0; row < table->nrows; row++) n += is_alone(table, row, predicted);
    return n;
}

static void tell_count(int64_t n, int64_t all, const char *only)
{
    if (n)
        pp_info("%" PRId64 " of %" PRId64 " configuration%s %s only %s.", n, all, pp_plural(all),
                n == 1 ? "was" : "were", only);
}

/* Two that look alike in the table's columns. */
static bool same_shape(const struct pp_table *table, int64_t a, int64_t b)
{
    static const int columns[] = {PP_CONF_SCHEDULE,     PP_CONF_STAGES,   PP_CONF_VIRTUAL, PP_CONF_CHUNKS,
                                  PP_CONF_MICROBATCHES, PP_CONF_REPLICAS, PP_CONF_TENSOR,  PP_CONF_CHECKPOINT};
    return pp_table_same(table, a, b, columns, (int)(sizeof columns / sizeof *columns));
}

/* What else they need in common to be laid beside each other. */
static void tell_difference(const struct pp_table *table, int64_t measured, int64_t predicted)
{
    const int64_t mine = run_of(table, measured, false), other = run_of(table, predicted, true);
    static const int settings[] = {PP_CONF_WORKLOAD, PP_CONF_DEVICE}, threads = PP_CONF_THREADS;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (pp_table_same(table, measured, predicted, &settings[i], 1)) continue;
        pp_info("Run %" PRId64 " stands alone: run %" PRId64
                ", a prediction of the same shape, has %s \"%s\" instead of "
                "\"%s\".",
                mine, other, table->columns[settings[i]].key, pp_table_text(table, predicted, settings[i]),
                pp_table_text(table, measured, settings[i]));
        return;
    }
    pp_info("Run %" PRId64 " stands alone: run %" PRId64 ", a prediction of the same shape, has %s.", mine, other,
            pp_table_same(table, measured, predicted, &threads, 1)
                ? "another plan (table run_config has the options of both)"
                : "another number of threads");
}

/* The newest that is alone on this side, and has the shape of that row unless it is -1; -1: none. */
static int64_t newest_alone(const struct pp_table *table, bool predicted, int64_t like)
{
    int64_t newest = -1;
    for (int64_t row = 0; row < table->nrows; row++) {
        if (!is_alone(table, row, predicted) || (like >= 0 && !same_shape(table, row, like))) continue;
        if (newest < 0 || run_of(table, row, predicted) > run_of(table, newest, predicted)) newest = row;
    }
    return newest;
}

static void tell_why(const struct pp_table *table)
{
    const int64_t measured = newest_alone(table, false, -1);
    const int64_t predicted = measured >= 0 ? newest_alone(table, true, measured) : -1;
    if (predicted >= 0) tell_difference(table, measured, predicted);
}

/* A run takes given times only in place of computing, and predictions of such runs are of that device, too. */
static void tell_unmeasured(const struct pp_table *table)
{
    bool given = true;
    for (int64_t row = 0; row < table->nrows && given; row++)
        given = strcmp(pp_table_text(table, row, PP_CONF_PRESET), "times") == 0 &&
                strcmp(pp_table_text(table, row, PP_CONF_DEVICE), "delay") != 0;
    pp_info_wrapped("Nothing was measured yet: run %s with the same options and --db to compare.",
                    given ? "ppsim and ppexec with --device delay, else" : "ppexec");
}

void pp_alone_notes(const struct pp_table *table)
{
    const int64_t predicted = count_alone(table, true), measured = count_alone(table, false);
    if (predicted == table->nrows) {
        tell_unmeasured(table);
    } else if (measured == table->nrows) {
        pp_info("Nothing was predicted yet: run ppsim with the same options and --db to compare.");
    } else {
        tell_count(predicted, table->nrows, "predicted");
        tell_count(measured, table->nrows, "measured");
        tell_why(table);
    }
}
