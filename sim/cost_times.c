/* SPDX-License-Identifier: Apache-2.0
 *
 * Durations as given with --times.
 */
#include <math.h>
#include <stdlib.h>

#include "sim/costs.h"

enum { FIELDS = 4, NEEDED = 3 };
static const double longest_ms = 1e9; /* 11 days */

static pp_status bad(const char *text, const char *why)
{
    return pp_fail(
        PP_USAGE,
        "--times: \"%s\" %s; give ms of forward, input gradient, weight gradient and, if you like, a hop: F,I,W[,C]",
        text, why);
}

/* One plain decimal number at *at; moves *at behind it. */
static pp_status parse_number(const char *text, const char **at, double *out)
{
    char *end;
    if ((**at < '0' || **at > '9') && **at != '.') return bad(text, "has something that is not a number >= 0");
    if (**at == '0' && ((*at)[1] == 'x' || (*at)[1] == 'X')) return bad(text, "has a number that is not decimal");
    *out = strtod(*at, &end);
    if (end == *at) return bad(text, "has something that is not a number >= 0");
    if (!(*out <= longest_ms)) return bad(text, "has a time above 1e9 ms");
    *at = end;
    return PP_OK;
}

pp_status pp_given_times_parse(const char *text, struct pp_given_times *out)
{
    double value[FIELDS] = {0};
    const char *at = text;
    int n = 0;
    for (;;) {
        if (n == FIELDS) return bad(text, "has more than four numbers");
        PP_TRY(parse_number(text, &at, &value[n++]));
        if (*at == '\0') break;
        if (*at++ != ',') return bad(text, "has something else than commas between its numbers");
    }
    if (n < NEEDED) return bad(text, "has fewer than three numbers");
    if (value[0] + value[1] + value[2] <= 0) return bad(text, "says that nothing takes any time");
    *out = (struct pp_given_times){value[0], value[1], value[2], value[3]};
    return PP_OK;
}

pp_status pp_cost_create(const struct pp_plan *plan, int source, struct pp_cost **out)
{
    *out = NULL;
    struct pp_cost *cost;
    PP_TRY(PP_NEW(&cost, 1));
    cost->nclasses = plan->nclasses;
    cost->source = source;
    cost->workers = plan->ranks * plan->replicas;
    pp_status status = PP_NEW(&cost->classes, plan->nclasses);
    if (status != PP_OK) {
        pp_cost_free(cost);
        return status;
    }
    for (int c = 0; c < plan->nclasses; c++) cost->classes[c].source = source;
    *out = cost;
    return PP_OK;
}

static double whole_rank_ms(const struct pp_given_times *times, int kind)
{
    switch (kind) {
    case PP_F:
    case PP_R:
        return times->forward_ms;
    case PP_I:
        return times->input_ms;
    case PP_W:
        return times->weight_ms;
    case PP_B:
        return times->input_ms + times->weight_ms;
    default:
        return 0; /* there is no optimizer; hops are latency */
    }
}

pp_status pp_cost_from_times(const struct pp_plan *plan, const struct pp_given_times *times, struct pp_cost **out)
{
    PP_TRY(pp_cost_create(plan, PP_COST_TIMES, out));
    struct pp_cost *cost = *out;
    for (int c = 0; c < plan->nclasses; c++) {
        /* Microbatches have one row each: rows count the microbatches that a task serves. */
        const struct pp_class *cls = &plan->classes[c];
        double ms = whole_rank_ms(times, cls->kind) * cls->rows / plan->virtual_stages;
        cost->classes[c].ns = cost->classes[c].loaded_ns = llround(ms * 1e6);
    }
    cost->link.latency_ns = llround(times->hop_ms * 1e6);
    return PP_OK;
}
