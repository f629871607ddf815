/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/vocabulary.h"

#include <stdlib.h>
#include <string.h>

static const char unknown[] = "<unk>";

struct word {
    size_t offset, length; /* in `text` */
    int64_t count;
    int32_t number;
};

struct pp_vocabulary {
    struct word *words; /* in order of appearance; the first is "<unk>" */
    int32_t size;
    char *text;
    size_t text_bytes;
    int64_t words_room, text_room;
    int32_t *slots; /* open addressing, a power of two of them: index into words, or -1 */
    size_t nslots;
};

/* FNV-1a */
static uint64_t hash_of(const char *word, size_t length)
{
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)word[i]) * 1099511628211u;
    return hash ^ hash >> 32;
}

/* The slot that holds the word, or the free one where it belongs. */
static size_t slot_of(const struct pp_vocabulary *v, const char *word, size_t length)
{
    size_t slot = hash_of(word, length) & (v->nslots - 1);
    for (; v->slots[slot] >= 0; slot = (slot + 1) & (v->nslots - 1)) {
        const struct word *have = &v->words[v->slots[slot]];
        if (have->length == length && !memcmp(v->text + have->offset, word, length)) break;
    }
    return slot;
}

static pp_status grow_slots(struct pp_vocabulary *v)
{
    const size_t n = v->nslots ? v->nslots * 2 : 4096;
    int32_t *slots;
    PP_TRY(PP_NEW(&slots, n));
    free(v->slots);
    v->slots = slots;
    v->nslots = n;
    memset(v->slots, 0xff, n * sizeof *v->slots);
    for (int32_t i = 0; i < v->size; i++) v->slots[slot_of(v, v->text + v->words[i].offset, v->words[i].length)] = i;
    return PP_OK;
}

pp_status pp_vocabulary_create(struct pp_vocabulary **out)
{
    int32_t zero;
    PP_TRY(PP_NEW(out, 1));
    pp_status status = pp_vocabulary_add(*out, unknown, sizeof unknown - 1, &zero);
    if (status != PP_OK) pp_vocabulary_free(*out);
    return status;
}

void pp_vocabulary_free(struct pp_vocabulary *vocabulary)
{
    if (!vocabulary) return;
    free(vocabulary->words);
    free(vocabulary->text);
    free(vocabulary->slots);
    free(vocabulary);
}

static pp_status make_room(struct pp_vocabulary *v, size_t length)
{
    if ((size_t)v->size * 2 >= v->nslots) PP_TRY(grow_slots(v));
    if (v->size == INT32_MAX / 2) return pp_fail(PP_INPUT, "the text has more than %d different words", v->size);
    PP_TRY(PP_GROW(&v->words, v->size + 1, &v->words_room));
    return PP_GROW(&v->text, (int64_t)(v->text_bytes + length), &v->text_room);
}

pp_status pp_vocabulary_add(struct pp_vocabulary *v, const char *word, size_t length, int32_t *number)
{
    PP_TRY(make_room(v, length));
    size_t slot = slot_of(v, word, length);
    if (v->slots[slot] < 0) {
        memcpy(v->text + v->text_bytes, word, length);
        v->words[v->size] = (struct word){.offset = v->text_bytes, .length = length, .number = v->size};
        v->text_bytes += length;
        v->slots[slot] = v->size++;
    }
    *number = v->slots[slot];
    v->words[*number].count++;
    return PP_OK;
}

/* Bytes of UTF-8 compare as the code points do. */
static int compare(const void *a, const void *b, void *arg)
{
    const struct pp_vocabulary *v = arg;
    const struct word *x = &v->words[*(const int32_t *)a], *y = &v->words[*(const int32_t *)b];
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    int order = memcmp(v->text + x->offset, v->text + y->offset, x->length < y->length ? x->length : y->length);
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

pp_status pp_vocabulary_rank(struct pp_vocabulary *v, int32_t **map)
{
    int32_t *order;
    PP_TRY(PP_NEW(map, v->size));
    pp_status status = PP_NEW(&order, v->size);
    if (status != PP_OK) {
        free(*map);
        return status;
    }
    for (int32_t i = 0; i < v->size; i++) order[i] = i;
    qsort_r(order + 1, (size_t)v->size - 1, sizeof *order, compare, v); /* "<unk>" stays first */
    for (int32_t i = 0; i < v->size; i++) {
        (*map)[order[i]] = i;
        v->words[order[i]].number = i;
    }
    free(order);
    return PP_OK;
}

int32_t pp_vocabulary_find(const struct pp_vocabulary *v, const char *word, size_t length)
{
    int32_t index = v->slots[slot_of(v, word, length)];
    return index < 0 ? 0 : v->words[index].number;
}

int32_t pp_vocabulary_size(const struct pp_vocabulary *v) { return v->size; }
