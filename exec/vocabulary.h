/* SPDX-License-Identifier: Apache-2.0
 *
 * Words to numbers. Words get numbers in the order in which they come; pp_vocabulary_rank() then renumbers them by
 * falling count, ties in code point order, with "<unk>" as 0.
 */
#ifndef PP_EXEC_VOCABULARY_H
#define PP_EXEC_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

struct pp_vocabulary;

pp_status pp_vocabulary_create(struct pp_vocabulary **out) PP_MUST_CHECK;
void pp_vocabulary_free(struct pp_vocabulary *vocabulary); /* NULL is fine */
/* The word's number, new or old; counts it. */
pp_status pp_vocabulary_add(struct pp_vocabulary *vocabulary, const char *word, size_t length,
                            int32_t *number) PP_MUST_CHECK;
/* *map: [size] from old numbers to final ones, the caller's to free. Nothing can be added afterwards. */
pp_status pp_vocabulary_rank(struct pp_vocabulary *vocabulary, int32_t **map) PP_MUST_CHECK;
/* The final number, 0 for a word that is not known. After ranking. */
int32_t pp_vocabulary_find(const struct pp_vocabulary *vocabulary, const char *word, size_t length);
int32_t pp_vocabulary_size(const struct pp_vocabulary *vocabulary);

#endif
