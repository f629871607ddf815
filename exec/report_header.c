/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "core/base/log.h"
#include "core/base/memory_text.h"
#include "core/base/text.h"
#include "exec/carrier.h"
#include "exec/place.h"
#include "exec/report.h"

enum { MEMORY_LINES = 16 }; /* of ranks that differ; one line more for all others */

/* Where a rank is several workers, each has an arena. */
static const char *of_what(const struct pp_layout *layout) { return layout->neighbours > 1 ? " a worker" : ""; }

static void memory_line(const struct pp_layout *layout, int first, int end)
{
    char buf[256], all[PP_MEMORY_TEXT];
    struct pp_text text = pp_text_in(buf, sizeof buf);
    const double bytes = (double)layout->arena_bytes[first];
    const struct pp_memory_unit *unit = pp_memory_unit(bytes);
    pp_memory_text(bytes, all);
    for (int kind = 0; kind < PP_BYTES_KINDS; kind++)
        if (layout->bytes[first][kind])
            pp_text_add(&text, "%s%s %.*f", pp_text_between(&text, " + "), pp_memory_names[kind], unit->decimals,
                        (double)layout->bytes[first][kind] / unit->bytes);
    if (end == first + 1)
        pp_info("memory      rank %d: %s%s = %s", first, all, of_what(layout), buf);
    else
        pp_info("memory      ranks %d-%d: each %s%s = %s", first, end - 1, all, of_what(layout), buf);
}

/* What is left when there are too many lines. */
static void other_memory(const struct pp_layout *layout, int first)
{
    int64_t least = INT64_MAX, most = 0;
    for (int r = first; r < layout->ranks; r++) {
        if (layout->arena_bytes[r] < least) least = layout->arena_bytes[r];
        if (layout->arena_bytes[r] > most) most = layout->arena_bytes[r];
    }
    const struct pp_memory_unit *unit = pp_memory_unit((double)most);
    pp_info("memory      ranks %d-%d: from %.*f to %.*f %s%s; --format json has each rank's", first, layout->ranks - 1,
            unit->decimals, (double)least / unit->bytes, unit->decimals, (double)most / unit->bytes, unit->name,
            of_what(layout));
}

static bool same_memory(const struct pp_layout *layout, int a, int b)
{
    return layout->arena_bytes[a] == layout->arena_bytes[b] &&
           memcmp(layout->bytes[a], layout->bytes[b], sizeof layout->bytes[a]) == 0;
}

static void memory_lines(const struct pp_layout *layout)
{
    for (int lines = 0, first = 0, end; first < layout->ranks; first = end, lines++) {
        if (lines == MEMORY_LINES) return other_memory(layout, first);
        for (end = first + 1; end < layout->ranks && same_memory(layout, first, end);) end++;
        memory_line(layout, first, end);
    }
}

/* What moves data between workers. Workers of one process always go without the carrier of several. */
static void transport_line(const struct pp_exec *exec, const struct pp_world *world)
{
    const struct pp_carrier *carrier = exec->carrier;
    if (!carrier)
        pp_info("transport   %s: %s", exec->transport->name, exec->transport->mover);
    else if (carrier == &pp_carrier_inproc || world->count == 1)
        pp_info("transport   %s: %s", carrier->name, carrier->mover);
    else
        pp_info("transport   %s between processes: %s; within one %s: %s", carrier->name, carrier->mover,
                pp_carrier_inproc.name, pp_carrier_inproc.mover);
}

static void key_line(const struct pp_exec *exec, const struct pp_job *job)
{
    char text[PP_BITS_TEXT];
    if (exec->mixed) {
        pp_info("equal bits  in runs with the same plan and processes alone");
        return;
    }
    pp_exec_bits(exec, job->train, text, sizeof text);
    pp_info("equal bits  in all runs with \"%s, %s\"", job->accumulation_key, text);
}

/* What replicas do beside computations; with shards the rest goes without saying. */
static const char *overlap_words(const struct pp_job *job)
{
    if (job->train->shards) return job->train->gathers_first ? ", overlap param gather" : "";
    if (!pp_config_sums_parts(job->config)) return "";
    return job->config->overlap_param_gather ? ", overlap grad reduce and param gather" : ", overlap grad reduce";
}

static void pipeline_line(const struct pp_job *job)
{
    const struct pp_plan *plan = job->train;
    const bool parts = pp_shape_parts_tokens(&job->model->shape);
    const char *rounded = job->model->shape.bf16_sums ? ", grad reduce in bf16" : "";
    char tensor[48] = "", beside[PP_BESIDE_TEXT], zero[32], experts[32] = "", context[48] = "",
         text[PP_CHECKPOINT_TEXT];
    const char *mode = plan->checkpoint == PP_CHECKPOINT_NEVER ? NULL : pp_checkpoint_text(plan->checkpoint, text);
    if (pp_plan_tensor(plan) > 1)
        snprintf(tensor, sizeof tensor, ", tensor %d%s", pp_plan_tensor(plan), parts ? ", sequence parallel" : "");
    pp_sharing_text(pp_plan_zero(plan), job->point.shard_degree, zero, sizeof zero);
    pp_beside_text(&job->model->shape, beside);
    if (plan->expert_parallel > 1) snprintf(experts, sizeof experts, ", expert parallel %d", plan->expert_parallel);
    if (plan->context > 1)
        snprintf(context, sizeof context, ", context parallel %d%s", plan->context,
                 pp_shape_context_words(&job->model->shape));
    pp_info("pipeline    %s, %d rank%s x %d stage%s%s%s%s%s, %d replica%s%s%s%s%s%s, plan %016llx", plan->schedule,
            plan->ranks, pp_plural(plan->ranks), plan->virtual_stages, pp_plural(plan->virtual_stages), tensor, experts,
            context, beside, pp_plan_data_parallel(plan), pp_plural(pp_plan_data_parallel(plan)), zero, rounded,
            overlap_words(job), mode ? ", checkpoint " : "", mode ? mode : "", (unsigned long long)plan->hash);
}

static const char *value_of(const struct pp_config *config, size_t field, char buf[PP_OPTION_TEXT])
{
    return pp_options_text(pp_config_row_of(field), config, buf);
}

/* What changes the learning rate. */
static void add_changes(const struct pp_config *config, struct pp_text *text)
{
    char buf[PP_OPTION_TEXT];
    const struct pp_lr_options *o = &config->over_steps;
    if (o->warmup_steps > 0) pp_text_add(text, ", reached in %d step%s", o->warmup_steps, pp_plural(o->warmup_steps));
    if (o->schedule != PP_LR_CONSTANT) {
        pp_text_add(text, ", %s to ", value_of(config, PP_OPTION(over_steps.schedule), buf));
        pp_text_add(text, "%s in step %d", value_of(config, PP_OPTION(over_steps.least), buf), o->steps);
    }
    if (config->lr_decay != 1)
        pp_text_add(text, ", times %s after each epoch", value_of(config, PP_OPTION(lr_decay), buf));
}

/* A device that waits learns nothing. */
static void training_line(const struct pp_session *s)
{
    const struct pp_config *config = s->config;
    char buf[256], value[PP_OPTION_TEXT];
    struct pp_text text = pp_text_in(buf, sizeof buf);
    if (s->backend->waits) return;
    pp_text_add(&text, "learning rate %s", value_of(config, PP_OPTION(lr), value));
    add_changes(config, &text);
    if (config->clip > 0) pp_text_add(&text, "; clip %s", value_of(config, PP_OPTION(clip), value));
    pp_text_add(&text, "; dropout %s", value_of(config, PP_OPTION(model.dropout), value));
    pp_info("training    %s; %d epoch%s of %d batch%s", buf, config->epochs, pp_plural(config->epochs),
            s->agenda->batches, pp_plural_es(s->agenda->batches));
}

/* It may take longer than the training. */
static void evaluation_line(const struct pp_agenda *agenda)
{
    const struct pp_batches *valid = &agenda->eval[PP_PART_VALID], *test = &agenda->eval[PP_PART_TEST];
    if (!agenda->evaluates) return;
    pp_info("evaluation  %d batch%s of %d row%s after each epoch, %d at the end; --no-eval leaves them out, "
            "--eval-batches says how many",
            valid->count, pp_plural_es(valid->count), valid->rows, pp_plural(valid->rows), test->count);
}

void pp_report_header(const struct pp_exec *exec, const struct pp_session *s)
{
    const struct pp_job *job = s->job;
    const struct pp_world *world = s->world;
    const int cores = pp_processes_cores(&world->processes);
    char rows[48], model[PP_MODEL_TEXT];
    pp_info("model       %s", pp_model_text(job->model, model, sizeof model));
    pp_info("data        %s", exec->data->summary);
    pp_info("batch       %d row%s of %d token%s in %d chunk%s = %s: %d microbatch%s; %d step%s, %d of them warm-up, %d "
            "traced",
            exec->config.rows, pp_plural(exec->config.rows), exec->config.tokens, pp_plural(exec->config.tokens),
            job->point.chunks, pp_plural(job->point.chunks), pp_plan_rows_text(job->train, rows, sizeof rows),
            job->train->microbatches, pp_plural_es(job->train->microbatches), s->agenda->steps,
            pp_plural(s->agenda->steps), s->agenda->warmup, s->agenda->steps - s->agenda->first_traced);
    training_line(s);
    evaluation_line(s->agenda);
    if (s->restart.resumed)
        pp_info("resumed     after %d step%s, from %s", s->agenda->first, pp_plural(s->agenda->first), s->restart.path);
    pipeline_line(job);
    key_line(exec, job);
    pp_info("device      %s; %d core%s, %d worker%s, threads of each: %d", exec->device_text, cores, pp_plural(cores),
            world->workers, pp_plural(world->workers), exec->config.threads);
    transport_line(exec, world);
    if (world->processes.count > 1)
        pp_info("processes   %d on %d machine%s, %d worker%s in each", world->processes.count, world->processes.hosts,
                pp_plural(world->processes.hosts), world->count, pp_plural(world->count));
    memory_lines(job->layout);
}
