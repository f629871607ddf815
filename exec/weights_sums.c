/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/weights_sums.h"

#include <string.h>
#include <zlib.h>

static const char letters[] = "0123456789abcdef";

int64_t pp_pieces(int64_t bytes) { return (bytes + PP_PIECE_BYTES - 1) / PP_PIECE_BYTES; }

uint32_t pp_sum_add(uint32_t sum, const void *bytes, size_t n) { return (uint32_t)crc32_z(sum, bytes, n); }

void pp_sum_write(uint32_t sum, char *digits)
{
    for (int i = PP_SUM_DIGITS - 1; i >= 0; i--, sum >>= 4) digits[i] = letters[sum & 15];
}

pp_status pp_sum_parse(const char *digits, uint32_t *sum)
{
    *sum = 0;
    for (int i = 0; i < PP_SUM_DIGITS; i++) {
        const char *letter = digits[i] ? strchr(letters, digits[i]) : NULL;
        if (!letter) return pp_fail(PP_INPUT, "'%.*s' is no checksum", PP_SUM_DIGITS, digits);
        *sum = *sum << 4 | (uint32_t)(letter - letters);
    }
    return PP_OK;
}

bool pp_sums_are_named(const char *name)
{
    static const char right[] = PP_NOTE_SUMS;
    int changed = 0;
    if (strlen(name) != strlen(right)) return false;
    for (size_t i = 0; right[i]; i++) changed += __builtin_popcount((unsigned char)(name[i] ^ right[i]));
    return changed <= 1;
}

char *pp_sums_find(char *header, size_t n)
{
    static const char name[] = "\"" PP_NOTE_SUMS "\":\"";
    char *at = memmem(header, n, name, sizeof name - 1);
    if (!at) return NULL;
    at += sizeof name - 1;
    return (size_t)(header + n - at) >= PP_SUM_DIGITS ? at : NULL;
}

uint32_t pp_sum_of_header(const char *header, size_t n, const char *digits)
{
    static const char zeros[PP_SUM_DIGITS] = {'0', '0', '0', '0', '0', '0', '0', '0'};
    const char *rest = digits + PP_SUM_DIGITS;
    const uint32_t before = pp_sum_add(0, header, (size_t)(digits - header));
    return pp_sum_add(pp_sum_add(before, zeros, sizeof zeros), rest, (size_t)(header + n - rest));
}
