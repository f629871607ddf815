/* SPDX-License-Identifier: Apache-2.0 */
#include "core/model/slice.h"

static int64_t share(int64_t rows, int sharers) { return (rows + sharers - 1) / sharers; }

static struct pp_slice of_columns(const struct pp_tensor *t, int sharer, int64_t local)
{
    const int64_t width = t->local[1], row = local / width, column = local % width;
    return (struct pp_slice){row * t->shape[1] + sharer * width + column, width - column};
}

/* Tensors cut by rows consist of blocks, each of which is cut by itself. The last workers may have fewer rows of a
 * block than they have room for; the rest is padding. */
static struct pp_slice of_rows(const struct pp_tensor *t, int sharers, int sharer, int64_t local)
{
    const int64_t width = t->shape[1], column = local % width;
    int64_t row = local / width, begin = 0;
    int b = 0;
    for (; row >= share(t->blocks[b], sharers); b++) {
        row -= share(t->blocks[b], sharers);
        begin += t->blocks[b];
    }
    const int64_t rows = share(t->blocks[b], sharers), first = sharer * rows, left = t->blocks[b] - first;
    const int64_t there = left < 0 ? 0 : left < rows ? left : rows;
    if (row >= there) return (struct pp_slice){-1, (rows - row) * width - column};
    return (struct pp_slice){(begin + first + row) * width + column, (there - row) * width - column};
}

int pp_tensor_sharers(const struct pp_tensor *t, const struct pp_shape *shape)
{
    if (t->split == PP_SPLIT_NONE) return 1;
    return t->of_experts ? pp_shape_sharers(shape) : pp_shape_tensor(shape);
}

/* Experts are dealt out to tensor ranks first: those of a tensor rank are adjacent, as their places in
 * kernels/kernels.h (route) are. Then each tensor rank's experts are dealt out to the expert ranks. */
struct pp_slice pp_tensor_slice(const struct pp_tensor *t, const struct pp_shape *shape, int member, int64_t local)
{
    const int tensor = pp_shape_tensor(shape), tensor_rank = member % tensor, expert_rank = member / tensor;
    const int sharer = t->of_experts ? tensor_rank * pp_shape_expert_parallel(shape) + expert_rank : tensor_rank;
    if (t->split == PP_SPLIT_COLUMNS) return of_columns(t, sharer, local);
    if (t->split == PP_SPLIT_ROWS) return of_rows(t, pp_tensor_sharers(t, shape), sharer, local);
    return (struct pp_slice){local, t->elements - local};
}
