/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/remarks_all.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/memory_text.h"

struct pp_left_out {
    struct pp_point first;
    const char *machine; /* on which all of them are; NULL: they are on several, or there is only one */
    int count;
    struct pp_left_out *next;
    char why[]; /* the reason, as the first one has it */
};

const char *pp_point_on_text(const struct pp_point *point, const char *machine, char buf[PP_POINT_ON_TEXT])
{
    char text[PP_POINT_TEXT];
    pp_point_text(point, text);
    snprintf(buf, PP_POINT_ON_TEXT, "%s%s%s", text, machine ? ", machine " : "", machine ? machine : "");
    return buf;
}

/* What a prediction adds to the database, as measured. A microbatch on a stage has about 2 tasks and 2 transfers with a
 * row each, and the events of both, in which a transfer has two ends. */
enum { ROWS_OF_CELL = 10, BYTES_OF_ROW = 36, BYTES_OF_RUN = 16 << 10, MUCH_BYTES = 256 << 20 };

void pp_remarks_all_database(const char *path, const struct pp_way *ways, int nways, int ntargets)
{
    char size[PP_MEMORY_TEXT];
    double runs = 0, rows = 0;
    for (int w = 0; w < nways; w++) {
        if (ways[w].impossible[0]) continue;
        for (int i = 0; i < ways[w].npoints; i++) {
            const struct pp_point *point = &ways[w].points[i];
            rows += (double)point->ranks * point->virtual_stages * point->chunks * ROWS_OF_CELL * ntargets;
        }
        runs += (double)ways[w].npoints * ntargets;
    }
    const double bytes = rows * BYTES_OF_ROW + runs * BYTES_OF_RUN;
    if (bytes < MUCH_BYTES) return;
    pp_warn(
        "--db: every task and event of %.0f configuration%s goes into %s: about %.0f million rows, %s; leave --db out "
        "if only the table is wanted, or name fewer configurations",
        runs, runs == 1 ? "" : "s", path, rows / 1e6, pp_memory_text(bytes, size));
}

void pp_remarks_all_take(struct pp_remarks_all *r, enum pp_point_remark kind, const char *remark)
{
    if (*remark && r->said[kind]++ == 0) pp_warn("%s", remark);
}

/* Are the reasons equal, apart from numbers and lists of numbers? Digits in a name such as "h100" are no number. */
static bool same_reason(const char *a, const char *b)
{
    static const char numbers[] = "0123456789, ";
    for (bool name = false;;) {
        const size_t n = name ? 0 : strspn(a, numbers), m = name ? 0 : strspn(b, numbers);
        const bool both = n > 0 && m > 0;
        if (!both && *a != *b) return false;
        if (*a == '\0') return true;
        name = !both && (isalpha((unsigned char)*a) || *a == '#' || (name && isdigit((unsigned char)*a)));
        a += both ? n : 1;
        b += both ? m : 1;
    }
}

static bool same_name(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

pp_status pp_remarks_all_leave_out(struct pp_remarks_all *r, const struct pp_point *point, const char *machine,
                                   const char *why)
{
    struct pp_left_out **at = &r->left_out;
    while (*at && !same_reason((*at)->why, why)) at = &(*at)->next;
    if (*at) {
        (*at)->count++;
        if (!same_name((*at)->machine, machine)) (*at)->machine = NULL;
        return PP_OK;
    }
    const size_t size = strlen(why) + 1;
    struct pp_left_out *group = malloc(sizeof *group + size);
    if (!group) return pp_fail(PP_NOMEM, "cannot allocate room to note what was left out");
    *group = (struct pp_left_out){.first = *point, .machine = machine, .count = 1};
    memcpy(group->why, why, size);
    *at = group;
    return PP_OK;
}

/* Does the reason name options, and none that was given but of the model? Then it is about what --auto has chosen. */
static bool is_of_choices(const struct pp_config *config, const char *why)
{
    const char *const model = pp_config_row_of(PP_OPTION(preset))->group;
    int named = 0, given = 0;
    for (const char *at = strstr(why, "--"); at; at = strstr(at + 2, "--"))
        for (int i = 0; i < pp_config_nrows; i++) {
            const size_t length = strlen(pp_config_rows[i].name);
            if (strncmp(at + 2, pp_config_rows[i].name, length) != 0) continue;
            if (isalnum((unsigned char)at[2 + length]) || at[2 + length] == '-') continue;
            named++;
            given += config->set[i] && strcmp(pp_config_rows[i].group, model) != 0;
        }
    return named > 0 && given == 0;
}

static void tell(const struct pp_left_out *group)
{
    char many[48] = "", text[PP_POINT_ON_TEXT];
    const bool named = group->machine && strstr(group->why, group->machine);
    if (group->count > 1) snprintf(many, sizeof many, "%d configurations, such as ", group->count);
    pp_warn("left out %s%s: %s", many, pp_point_on_text(&group->first, named ? NULL : group->machine, text),
            group->why);
}

void pp_remarks_all_left_out(const struct pp_remarks_all *r, const struct pp_config *config, bool own)
{
    int others = 0;
    for (const struct pp_left_out *group = r->left_out; group; group = group->next) {
        if (own && is_of_choices(config, group->why))
            others += group->count;
        else
            tell(group);
    }
    if (others > 0)
        pp_info("left out %d configuration%s of --auto whose values do not go together", others, pp_plural(others));
}

void pp_remarks_all_totals(const struct pp_remarks_all *r)
{
    static const char *const said[] = {[PP_REMARK_CHECKPOINT] = "checkpoints that save no memory",
                                       [PP_REMARK_FP8] = "no product in FP8",
                                       [PP_REMARK_HOSTS] = "groups that are in two hosts"};
    for (int i = 0; i < PP_POINT_REMARKS; i++)
        if (r->said[i] > 1) pp_warn("%d configurations have %s", r->said[i], said[i]);
}

void pp_remarks_all_free(struct pp_remarks_all *r)
{
    while (r->left_out) {
        struct pp_left_out *next = r->left_out->next;
        free(r->left_out);
        r->left_out = next;
    }
}
