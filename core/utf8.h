/* SPDX-License-Identifier: Apache-2.0
 *
 * As much of Unicode as the tokenizer needs, the same as Python's str.lower() and str.split() for text in practice.
 */
#ifndef PP_CORE_UTF8_H
#define PP_CORE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the code point at text[0..n-1], n > 0, and the code point; 0 if it is not valid UTF-8 (overlong forms and
 * surrogates too). */
size_t pp_utf8_decode(const unsigned char *text, size_t n, uint32_t *code);
/* Writes 1 to 4 bytes and returns how many. */
size_t pp_utf8_encode(uint32_t code, unsigned char *out);
bool pp_utf8_is_space(uint32_t code);
uint32_t pp_utf8_lower(uint32_t code);

#endif
