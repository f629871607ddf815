/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/product.h"

#include <math.h>

enum {
    LEAST_K = 256, /* least K of a part, if K is cut */
    MOST_PARTS = 16 /* a power of two */
};

static const struct tile {
    int m, n;
    int of; /* multiprocessors that compute the tile together, and load its operands once */
} shapes[] = {{256, 256, 2}, {128, 256, 1}, {256, 128, 1}, {128, 128, 1}, {128, 64, 1}, {64, 128, 1}, {64, 64, 1}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static double up(double n, double step) { return ceil(n / step); }

/* The time with tiles of this shape, and with K cut into `parts` parts, whose results are added in float32. */
static double tiled_ns(const struct pp_tiles *t, const struct pp_product *p, struct tile tile, int parts,
                       double flops_per_ns, double bytes_per_ns)
{
    /* Tiles at once. Of an odd number of multiprocessors one is in no pair, but the rates are those of all. */
    const double n = fmax(1, t->multiprocessors / tile.of), all = fmax(n, (double)t->multiprocessors / tile.of);
    const double waves = up((double)p->times * up((double)p->m, tile.m) * up((double)p->n, tile.n) * parts, n);
    const double area = (double)tile.m * tile.n, edge = tile.m + tile.n;
    const double multiplied = 2 * (area + t->load * edge) * up((double)p->k, parts) * all / (flops_per_ns * t->peak);
    const double stored = t->store * area * p->moved_bytes * all / bytes_per_ns;
    const double moved = 2 * (double)sizeof(float) * parts * (double)p->times * (double)p->m * (double)p->n;
    return waves * (multiplied + stored) + (parts > 1 ? t->split_ns + moved / bytes_per_ns : 0);
}

double pp_product_ns(const struct pp_tiles *tiles, const struct pp_product *product, double flops_per_ns,
                     double bytes_per_ns)
{
    double least = INFINITY;
    for (int i = 0; i < SHAPES; i++)
        for (int parts = 1; parts == 1 || (parts <= MOST_PARTS && product->k >= parts * LEAST_K); parts *= 2)
            least = fmin(least, tiled_ns(tiles, product, shapes[i], parts, flops_per_ns, bytes_per_ns));
    return least;
}
