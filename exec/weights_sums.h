/* SPDX-License-Identifier: Apache-2.0
 *
 * Checksums in safetensors files (docs/FORMATS.md#checksums): one text of the metadata, PP_NOTE_SUMS, has PP_SUM_DIGITS
 * hexadecimal digits for the header, then as many for each piece of each tensor, in the order of the file. A piece is
 * PP_PIECE_BYTES long; the last piece of a tensor may be shorter. Each sum is zlib's CRC-32.
 */
#ifndef PP_EXEC_WEIGHTS_SUMS_H
#define PP_EXEC_WEIGHTS_SUMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

#define PP_NOTE_SUMS "crc32 of each MiB"
enum { PP_PIECE_BYTES = 1 << 20, PP_SUM_DIGITS = 8 };

/* Pieces of a tensor of so many bytes; none of an empty one. */
int64_t pp_pieces(int64_t bytes);

/* The CRC-32 of some bytes and these n bytes behind them; sum: that of the bytes before, 0 where there are none. */
uint32_t pp_sum_add(uint32_t sum, const void *bytes, size_t n);

/* As PP_SUM_DIGITS digits, without a '\0'. */
void pp_sum_write(uint32_t sum, char *digits);
/* PP_INPUT where these are no PP_SUM_DIGITS digits. */
pp_status pp_sum_parse(const char *digits, uint32_t *sum) PP_MUST_CHECK;

/* Is it the name of checksums, PP_NOTE_SUMS, or was it before one bit of it changed? Else that bit would switch them
 * all off. */
bool pp_sums_are_named(const char *name);
/* The first digit of the checksums in a header of n bytes; NULL: there are none, or they do not stand there as
 * exec/weights_write.c writes them. */
char *pp_sums_find(char *header, size_t n);
/* The sum of a header of n bytes, in which the sum's own digits, at `digits`, count as zeros. */
uint32_t pp_sum_of_header(const char *header, size_t n, const char *digits);

#endif
