/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/tokenize.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/utf8.h"

/* What becomes of a character after lower-casing. */
enum action { KEEP, WORD_OF_ITS_OWN, BLANK };

static enum action action_of(unsigned char c)
{
    if (strchr("'.,()!?", c)) return WORD_OF_ITS_OWN; /* c is never 0 */
    return c == ';' || c == ':' ? BLANK : KEEP;
}

struct line {
    const char *path;
    long number;
    char *text; /* grown by getline */
    size_t capacity;
};

/* Lower case, in place: no letter gets longer (those that would, keep their case). Quotes go, and Unicode blanks
 * become plain ones. Returns the new length in *n. */
static pp_status normalise(const struct line *line, size_t *n)
{
    unsigned char *text = (unsigned char *)line->text;
    size_t out = 0, used;
    for (size_t i = 0; i < *n; i += used) {
        uint32_t code;
        used = pp_utf8_decode(text + i, *n - i, &code);
        if (!used)
            return pp_fail(
                PP_INPUT, "%s, line %ld, byte %zu: not valid UTF-8; convert the file, for instance with iconv -t UTF-8",
                line->path, line->number, i + 1);
        if (!code) return pp_fail(PP_INPUT, "%s, line %ld: a NUL byte; is this a text file?", line->path, line->number);
        if (code == '"') continue;
        unsigned char small[4];
        size_t length = pp_utf8_encode(pp_utf8_is_space(code) ? ' ' : pp_utf8_lower(code), small);
        if (length > used) {
            memmove(text + out, text + i, used);
            length = used;
        } else {
            memcpy(text + out, small, length);
        }
        out += length;
    }
    *n = out;
    return PP_OK;
}

static pp_status split(const unsigned char *text, size_t n, pp_word_fn fn, void *arg)
{
    static const char line_break[] = "<br />";
    size_t start = 0;
    for (size_t i = 0; i <= n;) {
        size_t skip = 1;
        enum action action = i == n || text[i] == ' ' ? BLANK : action_of(text[i]);
        if (n - i >= sizeof line_break - 1 && !memcmp(text + i, line_break, sizeof line_break - 1)) {
            skip = sizeof line_break - 1;
            action = BLANK;
        }
        if (action != KEEP) {
            if (i > start) PP_TRY(fn(arg, (const char *)text + start, i - start));
            if (action == WORD_OF_ITS_OWN) PP_TRY(fn(arg, (const char *)text + i, 1));
            start = i + skip;
        }
        i += skip;
    }
    return PP_OK;
}

static pp_status tokenize_stream(FILE *file, struct line *line, pp_word_fn fn, void *arg)
{
    for (;;) {
        errno = 0;
        ssize_t got = getline(&line->text, &line->capacity, file);
        if (got < 0 || ferror(file)) break; /* of a line that cannot be read to its end there is the beginning */
        line->number++;
        size_t n = (size_t)got;
        PP_TRY(normalise(line, &n));
        PP_TRY(split((const unsigned char *)line->text, n, fn, arg));
    }
    if (ferror(file) || errno) return pp_fail(PP_IO, "cannot read %s: %s", line->path, strerror(errno));
    return PP_OK;
}

pp_status pp_tokenize_file(const char *path, pp_word_fn fn, void *arg)
{
    /* Before it is opened: opening a pipe would wait for a writer, and a device may have no end. */
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return pp_fail(PP_INPUT, "%s is %s, not a text file", path,
                       S_ISDIR(info.st_mode) ? "a folder" : "a pipe or a device");
    FILE *file = fopen(path, "rb");
    if (!file) return pp_fail(PP_INPUT, "cannot open %s: %s", path, strerror(errno));
    struct line line = {.path = path};
    pp_status status = tokenize_stream(file, &line, fn, arg);
    free(line.text);
    fclose(file);
    return status;
}
