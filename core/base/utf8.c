/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/utf8.h"

#include <locale.h>
#include <pthread.h>
#include <wctype.h>

size_t pp_utf8_decode(const unsigned char *text, size_t n, uint32_t *code)
{
    /* If lead byte & mask == value, the sequence has this length. Code points below `least` have a shorter form. */
    static const struct {
        unsigned char mask, value;
        uint32_t least;
    } forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    for (size_t length = 1; length <= 4; length++) {
        unsigned char mask = forms[length - 1].mask;
        if ((text[0] & mask) != forms[length - 1].value) continue;
        if (length > n) return 0;
        uint32_t c = text[0] & (unsigned char)~mask;
        for (size_t i = 1; i < length; i++) {
            if ((text[i] & 0xc0) != 0x80) return 0;
            c = c << 6 | (text[i] & 0x3f);
        }
        *code = c;
        return c < forms[length - 1].least || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) ? 0 : length;
    }
    return 0;
}

size_t pp_utf8_encode(uint32_t code, unsigned char *out)
{
    if (code < 0x80) {
        out[0] = (unsigned char)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, code >>= 6) out[i] = (unsigned char)(0x80 | (code & 0x3f));
    out[0] = (unsigned char)((0xf00 >> length) | code);
    return length;
}

bool pp_utf8_is_space(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } spaces[] = {{0x09, 0x0d},     {0x1c, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680},
                  {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        if (code >= spaces[i].first && code <= spaces[i].last) return true;
    return false;
}

/* A locale that has the C library's Unicode tables, independent of the user's locale. */
static locale_t unicode;
static void load_unicode(void) { unicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0); }

uint32_t pp_utf8_lower(uint32_t code)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (code < 0x80) return code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code;
    pthread_once(&once, load_unicode);
    return unicode ? (uint32_t)towlower_l((wint_t)code, unicode) : code;
}
