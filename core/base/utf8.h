/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of Unicode that the tokenizer needs. For the texts that occur in practice they do the same as Python's
 * str.lower() and str.split().
 */
#ifndef PP_CORE_BASE_UTF8_H
#define PP_CORE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the code point at the beginning of text[n], n > 0, and returns the number of its bytes; 0 if it is not valid
 * UTF-8 (overlong forms and surrogates are not valid). */
size_t pp_utf8_decode(const unsigned char *text, size_t n, uint32_t *code);
/* Writes the code point as 1 to 4 bytes, and returns how many. */
size_t pp_utf8_encode(uint32_t code, unsigned char *out);
bool pp_utf8_is_space(uint32_t code);
uint32_t pp_utf8_lower(uint32_t code);

#endif
