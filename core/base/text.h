/* SPDX-License-Identifier: Apache-2.0
 *
 * Text that is put together piece by piece, in a buffer of the caller. What does not fit is cut off, and counted.
 */
#ifndef PP_CORE_BASE_TEXT_H
#define PP_CORE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/status.h"

struct pp_text {
    char *buf;         /* borrowed; always ends with a 0 */
    size_t size, used; /* used: characters of all pieces, also of those that did not fit */
};

/* An empty text in buf, which has at least one byte. */
struct pp_text pp_text_in(char *buf, size_t size);
/* Appends a piece. */
void pp_text_add(struct pp_text *text, const char *fmt, ...) PP_PRINTF(2, 3);
/* Was nothing cut off? */
static inline bool pp_text_fits(const struct pp_text *text) { return text->used < text->size; }
/* ", " between the parts of a list: "" while the text is empty. */
static inline const char *pp_text_between(const struct pp_text *text, const char *separator)
{
    return text->used ? separator : "";
}

#endif
