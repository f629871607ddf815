/* SPDX-License-Identifier: Apache-2.0
 *
 * How rotary positions are scaled for rows that are longer than those of a model's first training.
 */
#ifndef PP_CORE_SHAPE_ROPE_H
#define PP_CORE_SHAPE_ROPE_H

#include <math.h>
#include <stdbool.h>

/* Which pairs of columns turn slower, by Hugging Face's names (rope_type):
 *   llama3   Llama 3.1: pairs that turn less often than `low` times in a row of `tokens` tokens, the rows of the first
 *            training, turn `factor` times slower. Pairs that turn more often than `high` times keep their speed.
 *            Between the two the speed is interpolated by the number of turns.
 *   yarn     YaRN (Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models"; DeepSeek-V3,
 *            gpt-oss): as llama3, but interpolated by the number of the pair, with low its beta_slow and high its
 *            beta_fast. The numbers of the pairs at which `low` and `high` are reached are rounded outwards to whole
 *            ones, unless truncate is false. Sines and cosines are multiplied by a factor.
 *   linear   all pairs turn `factor` times slower (Chen et al. 2023, "Extending Context Window of Large Language Models
 *            via Positional Interpolation"). */
enum pp_rope_kind { PP_ROPE_LLAMA3, PP_ROPE_YARN, PP_ROPE_LINEAR, PP_ROPE_KINDS };
#define PP_ROPE_KIND_NAMES "llama3|yarn|linear"

struct pp_rope_kind_info {
    const char *name;
    double low, high; /* what they are unless they are given; both 0: the kind has none */
    double growth;    /* sines and cosines are multiplied by 1 + growth * log(factor), unless something else is given */
    bool truncates;   /* does `truncate` mean anything? */
};
extern const struct pp_rope_kind_info pp_rope_kinds[PP_ROPE_KINDS];

struct pp_rope_scaling {
    int kind;         /* enum pp_rope_kind */
    double factor;    /* 1 and less: nothing is scaled, and the other fields count for nothing */
    double low, high; /* turns in a row of `tokens` tokens; high > low, or of yarn high = low > 0 */
    int tokens;
    int truncate;     /* 1: pairs are rounded to whole ones */
    double magnitude; /* sines and cosines are multiplied by this; 0: by what the kind says */
};
static inline bool pp_rope_scales(const struct pp_rope_scaling *scaling) { return scaling->factor > 1; }

static inline double pp_rope_magnitude(const struct pp_rope_scaling *scaling)
{
    if (!pp_rope_scales(scaling)) return 1;
    return scaling->magnitude > 0 ? scaling->magnitude : 1 + pp_rope_kinds[scaling->kind].growth * log(scaling->factor);
}

#endif
