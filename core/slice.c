/* SPDX-License-Identifier: Apache-2.0 */
#include "core/slice.h"

static int64_t share(int64_t rows, int tensors) { return (rows + tensors - 1) / tensors; }

static struct pp_slice of_columns(const struct pp_tensor *t, int tensor_rank, int64_t local)
{
    const int64_t width = t->local[1], row = local / width, column = local % width;
    return (struct pp_slice){row * t->shape[1] + tensor_rank * width + column, width - column};
}

/* Block after block; the last worker may have fewer rows of one than there is room for. */
static struct pp_slice of_rows(const struct pp_tensor *t, int tensors, int tensor_rank, int64_t local)
{
    const int64_t width = t->shape[1], column = local % width;
    int64_t row = local / width, begin = 0;
    int b = 0;
    for (; row >= share(t->blocks[b], tensors); b++) {
        row -= share(t->blocks[b], tensors);
        begin += t->blocks[b];
    }
    const int64_t rows = share(t->blocks[b], tensors), first = tensor_rank * rows, left = t->blocks[b] - first;
    const int64_t there = left < 0 ? 0 : left < rows ? left : rows;
    if (row >= there) return (struct pp_slice){-1, (rows - row) * width - column};
    return (struct pp_slice){(begin + first + row) * width + column, (there - row) * width - column};
}

struct pp_slice pp_tensor_slice(const struct pp_tensor *t, int tensors, int tensor_rank, int64_t local)
{
    if (t->split == PP_SPLIT_COLUMNS) return of_columns(t, tensor_rank, local);
    if (t->split == PP_SPLIT_ROWS) return of_rows(t, tensors, tensor_rank, local);
    return (struct pp_slice){local, t->elements - local};
}
