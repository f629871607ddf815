/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/short_names.h"

#include <stdlib.h>
#include <string.h>

enum { KEPT = 2 /* first words of a name, which always stay: "F 2l+emb" */ };

/* The length of the word at `at`. */
static size_t length_of(const char *at) { return strcspn(at, " "); }

/* The word behind the one at `at`; "" if there is none. */
static const char *next_word(const char *at)
{
    at += length_of(at);
    return at + strspn(at, " ");
}

static const char *behind_kept(const char *name)
{
    for (int i = 0; i < KEPT; i++) name = next_word(name);
    return name;
}

static bool has_word(const char *text, const char *word)
{
    const size_t n = length_of(word);
    while (*text && (length_of(text) != n || strncmp(text, word, n) != 0)) text = next_word(text);
    return *text != '\0';
}

static bool is_rows(const char *word) { return strncmp(word, "rows", 4) == 0; }

/* Is it the name of a task of a microbatch? */
static bool has_rows(const char *name)
{
    while (*name && !is_rows(name)) name = next_word(name);
    return *name != '\0';
}

static bool all_have(const char *const *names, int64_t n, const char *word)
{
    int64_t i = 0;
    while (i < n && (!has_rows(names[i]) || has_word(behind_kept(names[i]), word))) i++;
    return i == n;
}

/* Appends a word to a text that has room for it. */
static void append(char *text, const char *word)
{
    if (*text) strcat(text, " ");
    strncat(text, word, length_of(word));
}

static void find_common(const char *const *names, int64_t n, char *out)
{
    int64_t first = 0;
    while (first < n && !has_rows(names[first])) first++;
    if (first == n) return;
    for (const char *word = behind_kept(names[first]); *word; word = next_word(word))
        if (!is_rows(word) && all_have(names, n, word)) append(out, word);
}

static void shorten(const char *name, const char *left_out, char *out)
{
    const char *const behind = behind_kept(name);
    for (const char *word = name; *word; word = next_word(word))
        if (word < behind || !has_word(left_out, word)) append(out, word);
}

pp_status pp_short_names_make(const char *const *names, int64_t n, int room, struct pp_short_names *out)
{
    size_t longest = 0;
    *out = (struct pp_short_names){0};
    PP_TRY(PP_NEW(&out->names, n));
    for (int64_t i = 0; i < n; i++) longest = strlen(names[i]) > longest ? strlen(names[i]) : longest;
    if (longest > (size_t)room) find_common(names, n, out->left_out);
    for (int64_t i = 0; i < n; i++) shorten(names[i], out->left_out, out->names[i]);
    return PP_OK;
}

void pp_short_names_free(struct pp_short_names *names)
{
    free(names->names);
    *names = (struct pp_short_names){0};
}
