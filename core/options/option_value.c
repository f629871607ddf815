/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts option values from text and back: a table has a pair of functions for each type.
 */
#include "core/options/options.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/base/decimal.h"
#include "core/base/text.h"

static const struct {
    const char *suffix;
    int64_t factor;
} byte_units[] = {
    {"", 1},           {"B", 1},
    {"K", 1LL << 10},  {"KiB", 1LL << 10}, {"KB", 1000LL},
    {"M", 1LL << 20},  {"MiB", 1LL << 20}, {"MB", 1000000LL},
    {"G", 1LL << 30},  {"GiB", 1LL << 30}, {"GB", 1000000000LL},
    {"T", 1LL << 40},  {"TiB", 1LL << 40}, {"TB", 1000000000000LL},
};

/* Decimal units. 10^9 has two: B (billion) as numbers of tokens and parameters are given, and G. */
static const struct {
    char suffix[2];
    double factor;
} amount_units[] = {{"", 1}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {"G", 1e9}, {"T", 1e12}};

/* Smaller numbers of bytes need a unit: other programs take a plain number as MiB or GiB, so bytes are hardly meant. */
enum { BARE_BYTES = 1 << 20 };

enum { MOST_NUMBERED = 65536 };

static bool has_limits(const struct pp_opt *row) { return row->min != 0 || row->max != 0; }

static pp_status check_range(const struct pp_opt *row, double value, const char *text)
{
    if (!has_limits(row) || (value >= row->min && value <= row->max)) return PP_OK;
    if (value < row->min) return pp_fail(PP_USAGE, "--%s: %s is below %.10g", row->name, text, row->min);
    return pp_fail(PP_USAGE, "--%s: %s is outside %.10g..%.10g", row->name, text, row->min, row->max);
}

static pp_status set_flag(const struct pp_opt *row, const char *text, void *field)
{
    (void)row;
    *(bool *)field = strcmp(text, "true") == 0;
    return PP_OK;
}

static pp_status read_int(const struct pp_opt *row, const char *text, int *out)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end) return pp_fail(PP_USAGE, "--%s: '%s' is not a whole number", row->name, text);
    PP_TRY(check_range(row, (double)value, text)); /* beyond a long, strtol() gives the nearest one */
    if (value < INT_MIN || value > INT_MAX)
        return pp_fail(PP_USAGE, "--%s: %s is too %s a number", row->name, text, value < 0 ? "small" : "large");
    *out = (int)value;
    return PP_OK;
}

static pp_status set_int(const struct pp_opt *row, const char *text, void *field) { return read_int(row, text, field); }

static pp_status set_seed(const struct pp_opt *row, const char *text, void *field)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, strncasecmp(text, "0x", 2) == 0 ? 16 : 10);
    if (end == text || *end || errno || strchr(text, '-'))
        return pp_fail(PP_USAGE, "--%s: '%s' is not a number from 0 to 2^64 - 1", row->name, text);
    *(uint64_t *)field = value;
    return PP_OK;
}

/* 0x1B would be 27, not a billion; only a seed may be hexadecimal. */
static pp_status read_real(const struct pp_opt *row, const char *text, char **end, double *out)
{
    *out = strtod(text, end);
    if (*end == text || !isfinite(*out) || pp_is_hexadecimal(text))
        return pp_fail(PP_USAGE, "--%s: '%s' is not a number", row->name, text);
    return PP_OK;
}

static pp_status set_bytes(const struct pp_opt *row, const char *text, void *field)
{
    char *suffix;
    double value;
    PP_TRY(read_real(row, text, &suffix, &value));
    for (size_t i = 0; i < sizeof byte_units / sizeof *byte_units; i++) {
        if (strcasecmp(suffix, byte_units[i].suffix) != 0) continue;
        double bytes = value * (double)byte_units[i].factor;
        if (bytes < 0 || bytes > 0x1p62) return pp_fail(PP_USAGE, "--%s: %s is no size", row->name, text);
        PP_TRY(check_range(row, bytes, text));
        if (!*suffix && bytes < BARE_BYTES)
            return pp_fail(PP_USAGE, "--%s: %s of what? Name a unit, such as %sG (GiB) or %sB (bytes)", row->name, text,
                           text, text);
        *(int64_t *)field = llround(bytes);
        return PP_OK;
    }
    return pp_fail(PP_USAGE, "--%s: '%s' is not a size such as 512M or 80G", row->name, text);
}

static pp_status set_real(const struct pp_opt *row, const char *text, void *field)
{
    char *end;
    double value;
    PP_TRY(read_real(row, text, &end, &value));
    if (*end) return pp_fail(PP_USAGE, "--%s: '%s' is not a number", row->name, text);
    PP_TRY(check_range(row, value, text));
    *(double *)field = value;
    return PP_OK;
}

static pp_status set_amount(const struct pp_opt *row, const char *text, void *field)
{
    char *suffix;
    double value;
    PP_TRY(read_real(row, text, &suffix, &value));
    for (size_t i = 0; i < sizeof amount_units / sizeof *amount_units; i++) {
        if (strcasecmp(suffix, amount_units[i].suffix) != 0) continue;
        PP_TRY(check_range(row, value * amount_units[i].factor, text));
        *(double *)field = value * amount_units[i].factor;
        return PP_OK;
    }
    return pp_fail(PP_USAGE, "--%s: '%s' is not a number such as 300e9, 300B or 15T", row->name, text);
}

/* Is the choice, of n bytes, one such as "layers:N"? It stands for the choices layers:1, layers:2, and so on. */
static bool is_numbered(const char *choice, size_t n) { return n > 2 && strncmp(choice + n - 2, ":N", 2) == 0; }

static bool read_number(const char *text, int *number)
{
    char *end;
    if (*text < '1' || *text > '9') return false;
    const long value = strtol(text, &end, 10);
    if (*end || value > MOST_NUMBERED) return false;
    *number = (int)value;
    return true;
}

/* The position of `text` among the choices "a|b|c". The last one may be "b:N", whose numbers continue the positions.
 * PP_USAGE, with the nearest choice and all choices, if it is none of them. */
static pp_status find_choice(const struct pp_opt *row, const char *text, int *position)
{
    size_t length = strlen(text);
    *position = 0;
    for (const char *at = row->choices; *at; (*position)++) {
        size_t n = strcspn(at, "|");
        const bool numbered = is_numbered(at, n);
        const size_t fixed = numbered ? n - 1 : n; /* bytes before N */
        int number = 1;
        if (strncmp(at, text, fixed) == 0 && (numbered ? read_number(text + fixed, &number) : length == n)) {
            *position += number - 1;
            return PP_OK;
        }
        at += n + (at[n] == '|');
    }
    char nearest[64];
    if (pp_nearest(text, row->choices, nearest, sizeof nearest))
        return pp_fail(PP_USAGE, "--%s: there is no '%s'; did you mean %s? There are %s", row->name, text, nearest,
                       row->choices);
    return pp_fail(PP_USAGE, "--%s: there is no '%s', only %s", row->name, text, row->choices);
}

static pp_status set_text(const struct pp_opt *row, const char *text, void *field)
{
    int ignored;
    if (!*text) return pp_fail(PP_USAGE, "--%s: the value is empty", row->name);
    if (row->choices) PP_TRY(find_choice(row, text, &ignored));
    if (strcmp(text, "-") == 0)
        return pp_fail(PP_USAGE,
                       "--%s: '-' is no name, and does not stand for standard input or output; name a file, or ./- if "
                       "that is its name",
                       row->name);
    *(const char **)field = text;
    return PP_OK;
}

static pp_status set_choice(const struct pp_opt *row, const char *text, void *field)
{
    return find_choice(row, text, field);
}

/* Copies the next entry of a comma-separated list and moves *at behind it. */
static pp_status next_entry(const struct pp_opt *row, const char **at, int n, char *entry, size_t size)
{
    size_t length = strcspn(*at, ",");
    if (length == 0) return pp_fail(PP_USAGE, "--%s: the list has an empty entry", row->name);
    if (n == PP_LIST_MAX) return pp_fail(PP_USAGE, "--%s: the list has more than %d entries", row->name, PP_LIST_MAX);
    if (length >= size) return pp_fail(PP_USAGE, "--%s: the list is too long at '%.*s'", row->name, (int)length, *at);
    memcpy(entry, *at, length);
    entry[length] = '\0';
    *at += length;
    return PP_OK;
}

/* Is the last value of the list new? A value that is given twice is kept once. */
static bool is_new_number(const struct pp_ints *list)
{
    int same = 0;
    while (list->v[same] != list->v[list->n]) same++;
    return same == list->n;
}

static bool is_new_text(const struct pp_texts *list, const char *text)
{
    int same = 0;
    while (same < list->n && strcmp(list->v[same], text) != 0) same++;
    return same == list->n;
}

static pp_status set_numbers(const struct pp_opt *row, const char *text, void *field,
                             pp_status (*read)(const struct pp_opt *row, const char *text, int *out))
{
    struct pp_ints list = {0};
    for (const char *at = text;; at++) {
        char entry[32];
        PP_TRY(next_entry(row, &at, list.n, entry, sizeof entry));
        PP_TRY(read(row, entry, &list.v[list.n]));
        list.n += is_new_number(&list);
        if (!*at) break;
    }
    memcpy(field, &list, sizeof list);
    return PP_OK;
}

static pp_status set_ints(const struct pp_opt *row, const char *text, void *field)
{
    return set_numbers(row, text, field, read_int);
}

static pp_status set_choices(const struct pp_opt *row, const char *text, void *field)
{
    return set_numbers(row, text, field, find_choice);
}

static pp_status set_texts(const struct pp_opt *row, const char *text, void *field)
{
    struct pp_texts *list = field;
    size_t used = 0;
    list->n = 0;
    for (const char *at = text;; at++) {
        char *entry = list->store + used;
        int ignored;
        PP_TRY(next_entry(row, &at, list->n, entry, sizeof list->store - used));
        if (row->choices) PP_TRY(find_choice(row, entry, &ignored));
        if (is_new_text(list, entry)) {
            list->v[list->n++] = entry;
            used += strlen(entry) + 1;
        }
        if (!*at) break;
    }
    return PP_OK;
}

static pp_status set_reals(const struct pp_opt *row, const char *text, void *field)
{
    struct pp_reals list = {0};
    for (const char *at = text;; at++) {
        char entry[32];
        PP_TRY(next_entry(row, &at, list.n, entry, sizeof entry));
        PP_TRY(set_real(row, entry, &list.v[list.n++]));
        if (!*at) break;
    }
    memcpy(field, &list, sizeof list);
    return PP_OK;
}

static void text_flag(const struct pp_opt *row, const void *field, char *buf, size_t size)
{
    (void)row;
    snprintf(buf, size, "%s", *(const bool *)field ? "true" : "false");
}

static void text_int(const struct pp_opt *row, const void *field, char *buf, size_t size)
{
    (void)row;
    snprintf(buf, size, "%d", *(const int *)field);
}

static void text_seed(const struct pp_opt *row, const void *field, char *buf, size_t size)
{
    (void)row;
    snprintf(buf, size, "%llu", (unsigned long long)*(const uint64_t *)field);
}

static void text_bytes(const struct pp_opt *row, const void *field, char *buf, size_t size)
{
    (void)row;
    snprintf(buf, size, "%lldB", (long long)*(const int64_t *)field);
}

const char *pp_real_text(double value, char buf[PP_REAL_BYTES])
{
    int digits = 6;
    do {
        snprintf(buf, PP_REAL_BYTES, "%.*g", digits, value);
    } while (strtod(buf, NULL) != value && ++digits <= 17);
    return buf;
}

static void text_real(const struct pp_opt *row, const void *field, char *buf, size_t size)
{
    char number[PP_REAL_BYTES];
    (void)row;
    snprintf(buf, size, "%s", pp_real_text(*(const double *)field, number));
}

static const char *text_of(const void *field)
{
    const char *text = *(const char *const *)field;
    return text ? text : "";
}

/* Appends the choice at position i. */
static void add_choice(const struct pp_opt *row, int i, struct pp_text *text)
{
    const char *choice = row->choices;
    for (const char *next; i > 0 && (next = strchr(choice, '|')); i--) choice = next + 1;
    const int length = (int)strcspn(choice, "|");
    if (is_numbered(choice, (size_t)length))
        pp_text_add(text, "%.*s%d", length - 1, choice, i + 1);
    else
        pp_text_add(text, "%.*s", length, choice);
}

static void text_choice(const struct pp_opt *row, const void *field, char *buf, size_t size)
{
    struct pp_text text = pp_text_in(buf, size);
    add_choice(row, *(const int *)field, &text);
}

static void text_choices(const struct pp_opt *row, const void *field, char *buf, size_t size)
{
    const struct pp_ints *list = field;
    struct pp_text text = pp_text_in(buf, size);
    for (int i = 0; i < list->n; i++) {
        pp_text_add(&text, "%s", i ? "," : "");
        add_choice(row, list->v[i], &text);
    }
}

static void text_ints(const struct pp_opt *row, const void *field, char *buf, size_t size)
{
    (void)row;
    const struct pp_ints *list = field;
    struct pp_text text = pp_text_in(buf, size);
    for (int i = 0; i < list->n; i++) pp_text_add(&text, "%s%d", i ? "," : "", list->v[i]);
}

static void text_texts(const struct pp_opt *row, const void *field, char *buf, size_t size)
{
    (void)row;
    const struct pp_texts *list = field;
    struct pp_text text = pp_text_in(buf, size);
    for (int i = 0; i < list->n; i++) pp_text_add(&text, "%s%s", i ? "," : "", list->v[i]);
}

static void text_reals(const struct pp_opt *row, const void *field, char *buf, size_t size)
{
    (void)row;
    const struct pp_reals *list = field;
    char number[PP_REAL_BYTES];
    struct pp_text text = pp_text_in(buf, size);
    for (int i = 0; i < list->n; i++) pp_text_add(&text, "%s%s", i ? "," : "", pp_real_text(list->v[i], number));
}

static const struct {
    pp_status (*set)(const struct pp_opt *row, const char *text, void *field);
    void (*text)(const struct pp_opt *row, const void *field, char *buf, size_t size);
} types[] = {
    [PP_OPT_FLAG] = {set_flag, text_flag},          [PP_OPT_INT] = {set_int, text_int},
    [PP_OPT_SEED] = {set_seed, text_seed},          [PP_OPT_BYTES] = {set_bytes, text_bytes},
    [PP_OPT_REAL] = {set_real, text_real},          [PP_OPT_TEXT] = {set_text, NULL},
    [PP_OPT_CHOICE] = {set_choice, text_choice},    [PP_OPT_INTS] = {set_ints, text_ints},
    [PP_OPT_CHOICES] = {set_choices, text_choices}, [PP_OPT_TEXTS] = {set_texts, text_texts},
    [PP_OPT_REALS] = {set_reals, text_reals},       [PP_OPT_AMOUNT] = {set_amount, text_real},
};

pp_status pp_options_set(const struct pp_opt *row, const char *text, void *options)
{
    return types[row->type].set(row, text, (char *)options + row->offset);
}

const char *pp_options_text(const struct pp_opt *row, const void *options, char buf[PP_OPTION_TEXT])
{
    const void *field = (const char *)options + row->offset;
    if (row->type == PP_OPT_TEXT) return text_of(field);
    types[row->type].text(row, field, buf, PP_OPTION_TEXT);
    return buf;
}
