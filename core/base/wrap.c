/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/wrap.h"

#include <stdbool.h>
#include <string.h>

/* The columns of the first n bytes: all but those that continue a code point begin one. */
static int columns_of(const char *text, int n)
{
    int columns = 0;
    for (int i = 0; i < n; i++) columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    return columns;
}

int pp_text_width(const char *text) { return columns_of(text, (int)strlen(text)); }

void pp_wrap(FILE *out, const char *text, int column, int indent)
{
    bool first = true;
    for (const char *at = text + strspn(text, " "); *at; first = false) {
        int n = (int)strcspn(at, " ");
        if (strncmp(at + n, " %", 2) == 0) n += 1 + (int)strcspn(at + n + 1, " ");
        const int columns = columns_of(at, n);
        if (!first && column + 1 + columns > PP_WRAP_COLUMNS) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", n, at);
        column += columns;
        at += n;
        at += strspn(at, " ");
    }
    fputc('\n', out);
}
