/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/text.h"

#include <stdarg.h>
#include <stdio.h>

struct pp_text pp_text_in(char *buf, size_t size)
{
    buf[0] = '\0';
    return (struct pp_text){.buf = buf, .size = size};
}

void pp_text_add(struct pp_text *text, const char *fmt, ...)
{
    const size_t at = pp_text_fits(text) ? text->used : text->size;
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(text->buf + at, text->size - at, fmt, args);
    va_end(args);
    text->used += n > 0 ? (size_t)n : 0;
}
