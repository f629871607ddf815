/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/agree.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/launcher.h"
#include "core/base/log.h"
#include "core/options/main.h"
#include "exec/signals.h"

/* What every process tells first; the terms themselves only where these say that something differs. */
struct head {
    int32_t refuses, n;
    uint64_t hash;
};

static uint64_t hash_of(uint64_t hash, const char *text) { return pp_hash_bytes(hash, text, strlen(text) + 1); }

void pp_terms_add(struct pp_terms *terms, const char *name, const char *advice, const char *fmt, ...)
{
    enum { NUMBER = sizeof "... 0123456789abcdef" };
    char *text;
    va_list args;
    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) < 0) text = NULL;
    va_end(args);
    if (terms->n++ < PP_TERMS) {
        struct pp_term *term = &terms->v[terms->n - 1];
        *term = (struct pp_term){.name = name, .advice = advice};
        if (!text || strlen(text) < sizeof term->value)
            snprintf(term->value, sizeof term->value, "%s", text ? text : "(no memory to say what)");
        else
            snprintf(term->value, sizeof term->value, "%.*s... %016" PRIx64, PP_TERM_VALUE - NUMBER, text,
                     hash_of(0, text));
    }
    free(text);
}

/* The message of the first process that refuses or whose terms are not those of process 0. */
static pp_status differ(const struct head *heads, const char *values, size_t bytes, const struct pp_terms *mine,
                        int count)
{
    int refuses = 0, accepts = 0, other = 1;
    while (refuses < count && !heads[refuses].refuses) refuses++;
    while (accepts < count && heads[accepts].refuses) accepts++;
    if (refuses < count)
        return pp_fail(PP_INPUT, "process %d refuses what process %d accepts: %.*s", refuses, accepts, (int)bytes,
                       values + (size_t)refuses * bytes);
    while (other < count - 1 && heads[other].n == heads[0].n && heads[other].hash == heads[0].hash) other++;
    if (heads[other].n != heads[0].n)
        return pp_fail(PP_INPUT, "process %d is another version of ppkit than process 0: start the same program",
                       other);
    const char *first = values, *second = values + (size_t)other * bytes;
    int i = 0;
    while (i < mine->n - 1 && strcmp(first, second) == 0) i++, first += PP_TERM_VALUE, second += PP_TERM_VALUE;
    return pp_fail(PP_INPUT, "process %d has another %s (%s) than process 0 (%s): %s", other, mine->v[i].name, second,
                   first, mine->v[i].advice);
}

/* Second round, of those that differ: what each has, or why it refuses. */
static pp_status tell(const struct pp_transport *transport, const struct head *heads, const char *refusal,
                      const struct pp_terms *mine, int count)
{
    const size_t bytes = sizeof mine->v[0].value * PP_TERMS;
    const int refuses = refusal[0] != '\0';
    char *values;
    PP_TRY(PP_NEW(&values, bytes * (size_t)(count + 1)));
    char *own = values + bytes * (size_t)count;
    if (refuses) snprintf(own, bytes, "%s", refusal);
    for (int i = 0; mine && !refuses && i < mine->n; i++)
        memcpy(own + i * PP_TERM_VALUE, mine->v[i].value, PP_TERM_VALUE);
    PP_TRY(transport->gather(own, (int)bytes, values)); /* after a failure it may still write into `values` */
    const pp_status status = differ(heads, values, bytes, mine, count);
    free(values);
    return status;
}

pp_status pp_agree(const struct pp_transport *transport, const struct pp_processes *processes, pp_status status,
                   const struct pp_terms *terms)
{
    const int count = processes->count;
    struct head *heads, *own;
    char refusal[PP_MESSAGE_BYTES] = "";
    bool equal = true;
    int refusing = 0;
    if (count == 1) return status;
    if (terms && terms->n > PP_TERMS)
        return pp_fail(PP_INTERNAL, "there is room for %d terms, and %d to agree on: raise PP_TERMS", PP_TERMS,
                       terms->n);
    if (status != PP_OK) snprintf(refusal, sizeof refusal, "%s", pp_message());
    PP_TRY(PP_NEW(&heads, count + 1));
    own = &heads[count];
    own->refuses = status != PP_OK;
    own->n = terms && status == PP_OK ? terms->n : 0;
    for (int i = 0; i < own->n; i++) own->hash = hash_of(own->hash, terms->v[i].value);
    PP_TRY(transport->gather(own, sizeof *own, heads)); /* after a failure it may still write into `heads` */
    for (int i = 0; i < count; i++) {
        refusing += heads[i].refuses;
        equal = equal && heads[i].n == heads[0].n && heads[i].hash == heads[0].hash;
    }
    if (refusing < count && (refusing > 0 || !equal)) status = tell(transport, heads, refusal, terms, count);
    free(heads);
    return status;
}

void pp_end_together(const struct pp_transport *transport, const struct pp_processes *processes, pp_status status,
                     bool alike)
{
    const bool first = transport ? processes->index == 0 : pp_launched_rank() == 0;
    const bool consequence = status == PP_PEER || status == PP_INTERRUPTED;
    bool speaks = first || !transport || (!alike && !consequence);
    if (status != PP_OK && speaks && !first) {
        pp_wait_for_launcher(); /* if the first process failed too, it speaks for all, and all are ended: a signal */
        speaks = !pp_signals_caught();
    }
    if (status != PP_OK && speaks) pp_error("%s", pp_message());
    if (transport && status != PP_OK && !alike) transport->abort(pp_exit_code(status));
    if (transport) transport->finish();
}
