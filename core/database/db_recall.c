/* SPDX-License-Identifier: Apache-2.0
 *
 * What look-ups have found: a sweep asks for the same times again and again.
 */
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/database/db_query.h"

struct known {
    const char *question; /* once it is kept: behind the answer, in `room` */
    char room[];
};

static int by_question(const void *a, const void *b)
{
    return strcmp(((const struct known *)a)->question, ((const struct known *)b)->question);
}

bool pp_db_knows(struct pp_db *db, const char *question, void *answer, size_t size)
{
    struct known *const *node = tfind(&(struct known){.question = question}, &db->known, by_question);
    if (node) memcpy(answer, (*node)->room, size);
    return node;
}

/* Without memory nothing is kept. */
void pp_db_keep(struct pp_db *db, const char *question, const void *answer, size_t size)
{
    const size_t length = strlen(question) + 1;
    struct known *known = malloc(sizeof *known + size + length);
    if (!known) return;
    memcpy(known->room, answer, size);
    known->question = memcpy(known->room + size, question, length);
    struct known *const *node = tsearch(known, &db->known, by_question);
    if (!node || *node != known) free(known);
}

void pp_db_forget(struct pp_db *db)
{
    tdestroy(db->known, free);
    db->known = NULL;
}

/* The statement's address, and the values with a unit separator before each, which is in none of them. */
static struct pp_text question_of(const char *statement, const struct pp_value *values, int n, char *buf, size_t size)
{
    struct pp_text text = pp_text_in(buf, size);
    pp_text_add(&text, "%p", (const void *)statement);
    for (int i = 0; i < n; i++) {
        if (values[i].type == SQLITE_TEXT)
            pp_text_add(&text, "\x1f%s", values[i].text);
        else if (values[i].type == SQLITE_FLOAT)
            pp_text_add(&text, "\x1f%a", values[i].real);
        else
            pp_text_add(&text, "\x1f%lld", (long long)values[i].integer);
    }
    return text;
}

pp_status pp_db_recall(struct pp_db *db, const char *text, const struct pp_value *values, int n, int64_t *out,
                       bool *found)
{
    struct {
        bool found;
        int64_t value;
    } answer = {0};
    char buf[1024];
    const struct pp_text question = question_of(text, values, n, buf, sizeof buf);
    if (!pp_text_fits(&question)) return pp_db_integer(db, text, values, n, out, found);
    if (!pp_db_knows(db, buf, &answer, sizeof answer)) {
        PP_TRY(pp_db_integer(db, text, values, n, &answer.value, &answer.found));
        pp_db_keep(db, buf, &answer, sizeof answer);
    }
    *found = answer.found;
    if (answer.found) *out = answer.value;
    return PP_OK;
}
