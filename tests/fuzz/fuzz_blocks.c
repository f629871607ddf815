/* SPDX-License-Identifier: Apache-2.0
 *
 * Block times. A file that was accepted can be predicted from: no time is negative or beyond counting.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/model.h"
#include "schedules/schedule.h"
#include "sim/predict.h"
#include "tests/fuzz/fuzz.h"

static struct pp_config config;
static struct pp_point *points;
static int npoints;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const words[] = {"ppsim",      "--times",  "file.tsv", "--stages", "2",
                                        "--schedule", "1f1b,zbv", "--chunks", "1,3"};
    (void)argc, (void)argv;
    pp_log_init("fuzz", true);
    fuzz_config(PP_PPSIM, words, sizeof words / sizeof *words, &config);
    fuzz_must(pp_points(&config, &pp_schedules, &points, &npoints) == PP_OK, "there are configurations");
    return 0;
}

static void predict(void)
{
    struct pp_predictor p = {.config = &config, .schedules = &pp_schedules, .ops = &pp_model_ops};
    for (int i = 0; i < npoints; i++) {
        struct pp_prediction prediction;
        if (pp_predict(&p, &points[i], true, &prediction) != PP_OK) continue;
        fuzz_must(prediction.result.metrics.makespan_ns >= 0, "time does not run backwards");
        pp_prediction_free(&prediction);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[32];
    const int file = memfd_create("blocks", 0);
    fuzz_must(file >= 0 && write(file, data, size) == (ssize_t)size, "a file can be written");
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    struct pp_blocks *blocks = NULL;
    const pp_status status = pp_blocks_read(path, &blocks);
    close(file);
    config.blocks = blocks;
    if (status != PP_OK)
        fuzz_must(strstr(pp_message(), path) != NULL, "a refusal names the file");
    else
        predict();
    pp_blocks_free(blocks);
    config.blocks = NULL;
    return 0;
}
