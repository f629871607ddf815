/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/printable.h"

#include <string.h>

#include "core/base/utf8.h"

char *pp_printable(char *text)
{
    unsigned char *c = (unsigned char *)text, *const end = c + strlen(text);
    while (c < end) {
        uint32_t code;
        const size_t length = pp_utf8_decode(c, (size_t)(end - c), &code);
        const int control = length > 0 && (code < 0x20 || (code >= 0x7f && code < 0xa0));
        const size_t bad = length == 0 ? 1 : control ? length : 0;
        memset(c, '?', bad);
        c += bad ? bad : length;
    }
    return text;
}
