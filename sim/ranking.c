/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/ranking.h"

#include <stdio.h>
#include <stdlib.h>

/* Is the schedule one for several stages on each rank, though the point may have one? */
static bool is_for_several(const struct pp_point *point, const struct pp_schedules *schedules)
{
    struct pp_schedule_found found;
    return schedules->find(point->schedule, &found) == PP_OK && found.virtual_stages > 1;
}

bool pp_rank_may_remove(const struct pp_point *point, const struct pp_schedules *schedules)
{
    return point->virtual_stages == 1 && is_for_several(point, schedules);
}

static bool differ_in_schedule_only(const struct pp_point *a, const struct pp_point *b)
{
    return a->ranks == b->ranks && a->virtual_stages == b->virtual_stages && a->chunks == b->chunks &&
           a->checkpoint == b->checkpoint && a->tensor == b->tensor && a->sum_pieces == b->sum_pieces &&
           a->exchange_pieces == b->exchange_pieces && a->zero == b->zero && a->shard_degree == b->shard_degree;
}

static bool is_no_better(const struct pp_row *row, const struct pp_row *than)
{
    return row->ms_per_batch >= than->ms_per_batch && row->device_bytes >= than->device_bytes;
}

pp_status pp_rank_remove_no_better(const struct pp_way *way, struct pp_row *rows, const struct pp_schedules *schedules,
                                   pp_left_out_fn left_out, void *context)
{
    char why[160];
    for (int i = 0; i < way->npoints; i++) {
        const struct pp_point *point = &way->points[i];
        if (!rows[i].json || !pp_rank_may_remove(point, schedules)) continue;
        int k = 0;
        while (k < way->npoints && !(rows[k].json && differ_in_schedule_only(point, &way->points[k]) &&
                                     !is_for_several(&way->points[k], schedules) && is_no_better(&rows[i], &rows[k])))
            k++;
        if (k == way->npoints) continue;
        snprintf(why, sizeof why,
                 "with one stage on each rank (--virtual 1) it takes no less time or memory than %.64s",
                 way->points[k].schedule);
        PP_TRY(left_out(context, point, why));
        pp_row_free(&rows[i]);
    }
    return PP_OK;
}

/* A row with what it is sorted by. */
struct place {
    struct pp_row row;
    int64_t bytes;  /* that it needs, if no row fits; else 0 */
    int64_t before; /* its index before sorting */
    int64_t better; /* better rows with the same number of workers on the same machine */
};

static int by_value(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->row.too_large != y->row.too_large) return x->row.too_large - y->row.too_large;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    if (x->row.value != y->row.value) return x->row.value < y->row.value ? -1 : 1;
    return x->before < y->before ? -1 : 1;
}

/* Does a row fit, or is that not known? */
static bool has_fitting(const struct pp_row *rows, int64_t n)
{
    int64_t i = 0;
    while (i < n && rows[i].too_large) i++;
    return i < n;
}

/* Rows with the same number of workers on the same machine are a group; in it the best come first. */
static int by_group(const void *a, const void *b)
{
    const struct place *x = *(const struct place *const *)a, *y = *(const struct place *const *)b;
    if (x->row.workers != y->row.workers) return x->row.workers < y->row.workers ? -1 : 1;
    if (x->row.target != y->row.target) return x->row.target < y->row.target ? -1 : 1;
    return x < y ? -1 : 1;
}

/* places[n], sorted: sets `better` of each. */
static pp_status count_better(struct place *places, int64_t n)
{
    struct place **grouped;
    PP_TRY(PP_NEW(&grouped, n));
    for (int64_t i = 0; i < n; i++) grouped[i] = &places[i];
    qsort(grouped, (size_t)n, sizeof *grouped, by_group);
    for (int64_t i = 1; i < n; i++) {
        const struct pp_row *last = &grouped[i - 1]->row, *row = &grouped[i]->row;
        const bool same = row->workers == last->workers && row->target == last->target;
        grouped[i]->better = same ? grouped[i - 1]->better + 1 : 0;
    }
    free(grouped);
    return PP_OK;
}

pp_status pp_rank(struct pp_row *rows, int64_t *n, const struct pp_config *config)
{
    const bool fitting = has_fitting(rows, *n);
    struct place *places;
    int64_t kept = 0;
    PP_TRY(PP_NEW(&places, *n));
    for (int64_t i = 0; i < *n; i++)
        places[i] = (struct place){.row = rows[i], .bytes = fitting ? 0 : rows[i].device_bytes, .before = i};
    qsort(places, (size_t)*n, sizeof *places, by_value);
    const pp_status status = count_better(places, *n);
    if (status != PP_OK) {
        free(places);
        return status;
    }
    for (int64_t i = 0; i < *n; i++) {
        if (!config->top || places[i].better < config->top)
            rows[kept++] = places[i].row;
        else
            pp_row_free(&places[i].row);
    }
    free(places);
    *n = kept;
    return PP_OK;
}
