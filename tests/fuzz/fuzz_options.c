/* SPDX-License-Identifier: Apache-2.0
 *
 * Command lines: the first byte names the program, the rest are its arguments, one a line. What was parsed reads back
 * from its own text, and the lists make a sweep.
 */
#include "kernels/model.h"
#include "schedules/schedule.h"
#include "sim/costs.h"
#include "tests/fuzz/fuzz.h"

enum { ARGUMENTS = 64, LAYERS = 64, POINTS = 1 << 16 };

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    pp_log_init("fuzz", true);
    return 0;
}

static void read_back(const struct pp_config *config)
{
    char text[1024], again[1024];
    static struct pp_config copy;
    copy = *config;
    for (int i = 0; i < pp_config_nrows; i++) {
        const struct pp_opt *row = &pp_config_rows[i];
        pp_options_text(row, config, text, sizeof text);
        if (!config->set[i] || row->type == PP_OPT_TEXT) continue;
        fuzz_must(pp_options_set(row, text, &copy) == PP_OK, "a value's text is a value");
        fuzz_must(strcmp(pp_options_text(row, &copy, again, sizeof again), text) == 0, "a value reads back");
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
    if (!config->split || strcmp(config->split, "time") == 0) return;
    if (pp_model_cut(&shape, config->stages.v[0], config->split, NULL, layers) != PP_OK) return;
    int sum = 0;
    for (int i = 0; i < config->stages.v[0]; i++) sum += layers[i];
    fuzz_must(sum == shape.layers, "a split has all layers");
}

static void make_points(const struct pp_config *config)
{
    struct pp_point *points = NULL;
    int n;
    if (pp_points(config, &pp_schedules, &points, &n) == PP_OK) fuzz_must(n > 0, "a sweep has a point");
    free(points);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pp_config config;
    static const struct pp_program_info info = {.tool = PP_PPSIM, .name = "fuzz", .summary = ""};
    char *argv[ARGUMENTS], name[] = "fuzz";
    const char *operand;
    int n = 1, noperands;
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
    if (pp_config_parse(tool, n, argv, &config, &operand, 1, &noperands) == PP_OK) {
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
