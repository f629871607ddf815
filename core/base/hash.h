/* SPDX-License-Identifier: Apache-2.0
 *
 * A hash of 64 bits, to tell things apart: no protection against those who would make two alike. It begins with 0, and
 * never changes, for databases have hashes, and runs of other versions are compared by them.
 */
#ifndef PP_CORE_BASE_HASH_H
#define PP_CORE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* One step, a multiply-xorshift. It takes a word at a time, so that millions of words stay cheap. */
static inline uint64_t pp_hash_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static inline uint64_t pp_hash_pair(uint64_t hash, int32_t a, int32_t b)
{
    return pp_hash_word(hash, (uint64_t)(uint32_t)a << 32 | (uint32_t)b);
}

/* A step for each byte. With the terminating 0 of texts, texts that follow each other do not run together. */
static inline uint64_t pp_hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *at = (const unsigned char *)bytes;
    for (size_t i = 0; i < n; i++) hash = pp_hash_word(hash, at[i]);
    return hash;
}

#endif
