/* SPDX-License-Identifier: Apache-2.0
 *
 * A generated text that can be learned: a Markov chain in which each word has a few possible successors, the same
 * number with the same probabilities for all words. So the entropy of a word after its predecessor, which is the loss
 * that a model of the chain reaches, is known exactly. Which words follow is a function of the seed; small numbers are
 * preferred, so that some words are frequent and most are rare, as in a language.
 */
#include <math.h>
#include <stdlib.h>

#include "core/base/mix.h"
#include "exec/data.h"

enum { SUCCESSORS = 4, SKEW = 6 };

static const double weights[SUCCESSORS] = {0.55, 0.25, 0.15, 0.05};

static double uniform(uint64_t bits) { return (double)(bits >> 11) * 0x1p-53; }

/* SUCCESSORS different words for each word (fewer in a tiny vocabulary). */
static void choose_successors(int32_t *successors, int vocabulary, int n, uint64_t seed)
{
    for (int64_t word = 0; word < vocabulary; word++) {
        int32_t *mine = successors + word * n;
        for (int j = 0; j < n; j++) {
            uint64_t bits = pp_mix(pp_mix(seed ^ 0x5eed) + (uint64_t)word * SUCCESSORS + (uint64_t)j);
            mine[j] = (int32_t)(vocabulary * pow(uniform(bits), SKEW));
            for (int i = 0; i < j; i++)
                if (mine[i] == mine[j])
                    mine[j] = (mine[j] + 1) % vocabulary, i = -1; /* taken: try the next word from the start */
        }
    }
}

static double total_weight(int n)
{
    double total = 0;
    for (int j = 0; j < n; j++) total += weights[j];
    return total;
}

static double entropy(int n)
{
    double total = total_weight(n), sum = 0;
    for (int j = 0; j < n; j++) sum -= weights[j] / total * log(weights[j] / total);
    return sum;
}

static void walk(const int32_t *successors, int n, uint64_t seed, int32_t *words, int64_t length)
{
    int32_t word = 0;
    double total = total_weight(n);
    for (int64_t i = 0; i < length; i++) {
        double u = uniform(pp_mix(seed + (uint64_t)i)) * total;
        int j = 0;
        for (int k = 0; k < n - 1; u -= weights[k++]) j += u >= weights[k]; /* a branch could not be foretold */
        words[i] = word = successors[(int64_t)word * n + j];
    }
}

pp_status pp_data_size_generated(const struct pp_config *config, struct pp_data *data)
{
    for (int part = 0; part < PP_PARTS; part++)
        data->length[part] = part == PP_PART_TRAIN ? config->generated_tokens : config->generated_tokens / 10;
    return PP_OK;
}

pp_status pp_data_generate(const struct pp_config *config, struct pp_data *data)
{
    const struct pp_shape *model = &config->model;
    int n = model->vocab < SUCCESSORS ? model->vocab : SUCCESSORS;
    int32_t *successors;
    pp_status status = PP_OK;
    PP_TRY(pp_data_size_generated(config, data));
    PP_TRY(PP_NEW(&successors, (int64_t)model->vocab * n));
    choose_successors(successors, model->vocab, n, config->seed);
    for (int part = 0; part < PP_PARTS && status == PP_OK; part++) {
        status = PP_NEW(&data->words[part], data->length[part]);
        if (status == PP_OK)
            walk(successors, n, pp_mix(config->seed * PP_PARTS + (uint64_t)part), data->words[part],
                 data->length[part]);
    }
    free(successors);
    data->reachable_loss = entropy(n);
    snprintf(data->summary, sizeof data->summary,
             "generated: %lld training words of a Markov chain, reachable loss %.3f (perplexity %.2f)%s",
             (long long)data->length[PP_PART_TRAIN], entropy(n), exp(entropy(n)),
             model->mask == PP_MASK_CAUSAL ? "" : ", lower without a causal mask: the model sees the next word");
    return status;
}
