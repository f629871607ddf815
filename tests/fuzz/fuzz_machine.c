/* SPDX-License-Identifier: Apache-2.0
 *
 * Machine files. A machine that was accepted can be predicted for: no time is negative or beyond counting.
 */
#include "kernels/model.h"
#include "schedules/schedule.h"
#include "sim/predict.h"
#include "tests/fuzz/fuzz.h"

static struct pp_config config;
static struct pp_point *points;
static int npoints;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const words[] = {"ppsim", "--preset", "lab", "--replicas", "2", "--clip", "1"};
    (void)argc, (void)argv;
    pp_log_init("fuzz", true);
    fuzz_config(PP_PPSIM, words, sizeof words / sizeof *words, &config);
    fuzz_must(pp_points(&config, &pp_schedules, &points, &npoints) == PP_OK, "there is a configuration");
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const devices[] = {"cpu", "cuda"};
    struct pp_predictor p = {.config = &config, .schedules = &pp_schedules, .ops = &pp_model_ops};
    char *text = malloc(size ? size : 1);
    memcpy(text, data, size);
    pp_status status = pp_machine_parse(text, size, "file.json", &p.machine);
    free(text);
    if (status != PP_OK) {
        fuzz_must(strstr(pp_message(), "file.json") != NULL, "a refusal names the file");
        return 0;
    }
    for (int i = 0; i < 2; i++) {
        struct pp_prediction prediction;
        config.device = devices[i];
        if (pp_predict(&p, &points[0], true, &prediction) != PP_OK) continue;
        fuzz_must(prediction.result.metrics.makespan_ns >= 0, "time does not run backwards");
        pp_prediction_free(&prediction);
    }
    return 0;
}
