/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/train.h"

#include <inttypes.h>

/* All steps are traced where there is no room for others; at least one plain step is left if possible. */
static int traced_steps(const struct pp_config *config, int measured)
{
    int most = measured > 1 ? measured / 2 : measured;
    return config->trace_steps < most ? config->trace_steps : most;
}

struct pp_batch_cut pp_training_cut(const struct pp_config *config, int replica)
{
    return (struct pp_batch_cut){.rows = config->rows,
                                 .seq = config->tokens,
                                 .replicas = config->replicas,
                                 .replica = replica,
                                 .limit = config->max_batches};
}

pp_status pp_agenda_make(const struct pp_config *config, const struct pp_data *data, struct pp_agenda *out)
{
    const struct pp_batch_cut training = pp_training_cut(config, 0);
    const struct pp_batch_cut evaluating = {
        .rows = config->eval_rows, .seq = config->tokens, .replicas = 1, .limit = config->eval_batches};
    struct pp_batches train;
    const int parts = pp_config_context(config);
    const bool halves = pp_context_halves_rows(config->model.context_kind, parts);
    *out = (struct pp_agenda){.evaluates = !config->no_eval && data->words[PP_PART_VALID]};
    PP_TRY(pp_batches_cut(data, PP_PART_TRAIN, &training, &train));
    PP_TRY(pp_batches_share(&train, parts, 0, halves));
    for (int part = PP_PART_VALID; part < PP_PARTS && out->evaluates; part++) {
        struct pp_batches *eval = &out->eval[part];
        PP_TRY(pp_batches_cut(data, part, &evaluating, eval));
        PP_TRY(pp_batches_share(eval, parts, 0, halves));
    }
    if ((int64_t)train.count * config->epochs > INT32_MAX)
        return pp_fail(PP_USAGE, "%d epoch%s of %d batch%s are too many steps; use fewer --epochs or --max-batches",
                       config->epochs, pp_plural(config->epochs), train.count, pp_plural_es(train.count));
    out->batches = train.count;
    out->tail_seq = train.tail_seq;
    return PP_OK;
}

/* Sets where the run begins: after steps that may have been made with other numbers of them in an epoch. */
static pp_status find_place(const struct pp_config *config, const struct pp_restart_state *start,
                            struct pp_agenda *agenda)
{
    const int batches = agenda->batches;
    agenda->first = start->step;
    agenda->epoch = start->epoch >= 0 ? start->epoch : start->step / batches;
    agenda->batch = start->epoch >= 0 ? start->batch : start->step % batches;
    const int64_t epochs = (int64_t)agenda->epoch + (agenda->batch > 0);
    if (epochs > config->epochs)
        return pp_fail(PP_INPUT,
                       "--epochs: the run to resume has done %d step%s and is in epoch %" PRId64
                       "; use at least %" PRId64,
                       start->step, pp_plural(start->step), epochs, epochs);
    if (agenda->batch > batches)
        return pp_fail(PP_INPUT,
                       "--max-batches: the run to resume has done %d batch%s of its epoch, which now has %d; use at "
                       "least as many, or resume where an epoch has ended",
                       agenda->batch, pp_plural_es(agenda->batch), batches);
    const int64_t left = (int64_t)(config->epochs - agenda->epoch) * batches - agenda->batch;
    if (start->step + left > INT32_MAX)
        return pp_fail(PP_INPUT, "--epochs: %d steps that are done and %" PRId64 " more are too many; use fewer",
                       start->step, left);
    agenda->steps = start->step + (int)left;
    return PP_OK;
}

pp_status pp_agenda_begin(const struct pp_config *config, const struct pp_restart_state *start,
                          struct pp_agenda *agenda)
{
    PP_TRY(find_place(config, start, agenda));
    const int steps = agenda->steps - agenda->first;
    agenda->warmup = config->warmup >= 0 ? config->warmup : steps / 4 < 3 ? steps / 4 : 3;
    if (agenda->warmup >= steps) agenda->warmup = steps > 0 ? steps - 1 : 0;
    agenda->first_traced = agenda->steps - traced_steps(config, steps - agenda->warmup);
    return PP_OK;
}
