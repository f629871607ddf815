/* SPDX-License-Identifier: Apache-2.0
 *
 * Command lines: the first byte names the program, the rest are its arguments, one a line. What was parsed reads back
 * from its own text, the lists make a sweep, and its first configuration is refused or becomes a job, with sizes and
 * times that are none below nought, and with --times a prediction.
 */
#include "kernels/model.h"
#include "schedules/schedule.h"
#include "sim/costs.h"
#include "sim/engine.h"
#include "tests/fuzz/fuzz.h"

enum { ARGUMENTS = 64, LAYERS = 64 };
enum { JOB_LAYERS = 1024, JOB_ROWS = 1024, JOB_CELLS = 1024, SIM_REPLICAS = 8 }; /* beyond, a job takes too long */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    pp_log_init("fuzz", true);
    return 0;
}

static void read_back(const struct pp_config *config)
{
    char text[PP_OPTION_TEXT], again[PP_OPTION_TEXT];
    static struct pp_config copy;
    copy = *config;
    for (int i = 0; i < pp_config_nrows; i++) {
        const struct pp_opt *row = &pp_config_rows[i];
        if (!config->set[i] || row->type == PP_OPT_TEXT) continue;
        pp_options_text(row, config, text);
        fuzz_must(pp_options_set(row, text, &copy) == PP_OK, "a value's text is a value");
        fuzz_must(strcmp(pp_options_text(row, &copy, again), text) == 0, "a value reads back");
    }
}

/* The texts that are parsed later. */
static void parse_rest(const struct pp_config *config)
{
    struct pp_given_times times;
    if (config->times) (void)!pp_given_times_parse(config->times, &times);
    int layers[LAYERS];
    struct pp_shape shape;
    pp_config_shape(config, &shape);
    if (shape.layers > LAYERS || config->stages.n == 0 || config->stages.v[0] > shape.layers) return;
    if (!config->split || pp_config_splits_by_time(config)) return;
    int stage_rank[LAYERS];
    struct pp_cut cut = {.stages = config->stages.v[0], .split = config->split};
    for (int ranks = 0; ranks <= 2; ranks += 2) { /* a rank for each stage, or two for all */
        int sum = 0;
        for (int i = 0; i < cut.stages; i++) stage_rank[i] = i % 2;
        cut.stage_rank = ranks ? stage_rank : NULL;
        if (pp_model_cut(&shape, &cut, layers) != PP_OK) return;
        for (int i = 0; i < cut.stages; i++) sum += layers[i];
        fuzz_must(sum == shape.layers, "a split has all layers");
    }
}

/* What is refused at once is no work, however large. */
static bool is_small(const struct pp_config *config, const struct pp_point *point)
{
    const int64_t stages = (int64_t)point->ranks * point->virtual_stages;
    if (pp_point_check(config, point) != PP_OK) return true;
    if (config->rows > JOB_ROWS || config->eval_rows > JOB_ROWS || config->model.layers > JOB_LAYERS) return false;
    if (pp_split_ends(config->split) > 0 && config->model.layers > LAYERS) return false;
    return stages * point->chunks <= JOB_CELLS;
}

static void check_layout(const struct pp_layout *layout)
{
    for (int r = 0; r < layout->ranks; r++) {
        int64_t sum = 0;
        for (int kind = 0; kind < PP_BYTES_KINDS; kind++) {
            fuzz_must(layout->bytes[r][kind] >= 0, "sizes are not negative");
            sum += layout->bytes[r][kind];
        }
        fuzz_must(sum == layout->arena_bytes[r], "an arena is the sum of its parts");
        fuzz_must(layout->live_peak_bytes[r] >= 0 && layout->live_peak_bytes[r] <= sum, "what is live is in the arena");
    }
}

static void simulate(const struct pp_job *job)
{
    const struct pp_sim_options options = {.trace = true};
    struct pp_cost *cost;
    struct pp_sim_result result;
    if (job->train->replicas > SIM_REPLICAS || pp_cost_from_times(job->train, &job->times, &cost) != PP_OK) return;
    if (pp_sim_run(job->train, cost, &options, &result) == PP_OK) {
        fuzz_must(result.metrics.makespan_ns >= 0 && result.batch_ns >= 0, "time does not run backwards");
        pp_sim_result_free(&result);
    }
    pp_cost_free(cost);
}

static void make_job(const struct pp_config *config, const struct pp_point *point)
{
    struct pp_job *job;
    int64_t ns;
    if (!is_small(config, point)) return;
    if (pp_job_create(config, point, &pp_schedules, &pp_model_ops, !config->no_eval, NULL, &job) != PP_OK) return;
    check_layout(job->layout);
    for (int c = 0; config->times && c < job->train->nclasses; c++)
        if (pp_given_class_ns(&job->times, job->train, &job->train->classes[c], &ns) == PP_OK)
            fuzz_must(ns >= 0, "times are not negative");
    if (config->times) simulate(job);
    pp_job_free(job);
}

static void make_points(const struct pp_config *config)
{
    struct pp_point *points = NULL;
    int n;
    if (pp_points(config, &pp_schedules, &points, &n) == PP_OK) {
        fuzz_must(n > 0, "a sweep has a point");
        make_job(config, &points[0]);
    }
    free(points);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pp_config config;
    static const struct pp_program_info info = {.tool = PP_PPSIM, .name = "fuzz", .summary = ""};
    char *argv[ARGUMENTS], name[] = "fuzz";
    const char *operand;
    int n = 1;
    if (size < 1) return 0;
    unsigned tool = 1u << (data[0] & 3);
    char *text = malloc(size); /* to the byte, so that a read beyond it is seen */
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    argv[0] = name;
    for (char *at = text; n < ARGUMENTS && at; n++) {
        argv[n] = at;
        at = strchr(at, '\n');
        if (at) *at++ = '\0';
    }
    if (pp_config_parse(tool, n, argv, &config, &operand) == PP_OK) {
        FILE *out = fopen("/dev/null", "w");
        read_back(&config);
        if (tool != PP_PPREPORT) parse_rest(&config);
        if (tool != PP_PPREPORT) make_points(&config);
        pp_config_answer(&config, &info, out);
        fclose(out);
    } else {
        fuzz_must(pp_message()[0] != '\0', "a refusal says why");
    }
    free(text);
    return 0;
}
