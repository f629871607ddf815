/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiles as text. One that was accepted can be written, and is the same when it is read again; a prediction from it
 * is refused or has a time.
 */

#include "core/database/db_profile_text.h"
#include "core/database/db_query.h"
#include "kernels/model.h"
#include "schedules/schedule.h"
#include "sim/predict.h"
#include "tests/fuzz/fuzz.h"

static struct pp_config config;
static struct pp_point *points;
static struct pp_predictor predictor = {.config = &config, .schedules = &pp_schedules, .ops = &pp_model_ops};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const words[] = {"ppsim", "--preset", "lab"};
    int n;
    (void)argc, (void)argv;
    pp_log_init("fuzz", true);
    fuzz_config(PP_PPSIM, words, sizeof words / sizeof *words, &config);
    fuzz_must(pp_points(&config, &pp_schedules, &points, &n) == PP_OK, "there is a configuration");
    fuzz_must(pp_machine_find(NULL, &predictor.machine) == PP_OK, "there is a machine");
    fuzz_must(pp_db_open(":memory:", PP_DB_WRITE, &predictor.db) == PP_OK, "a database is opened");
    return 0;
}

static pp_status take(const char *text, size_t size)
{
    static const char clear[] =
        "DELETE FROM run; DELETE FROM task_time; DELETE FROM kernel_time; DELETE FROM link_time; DELETE FROM link";
    fuzz_must(pp_db_flush(predictor.db) == PP_OK, "what was read is kept");
    fuzz_must(sqlite3_exec(predictor.db->sql, clear, NULL, NULL, NULL) == SQLITE_OK, "tables can be emptied");
    FILE *in = fmemopen((char *)text, size, "r");
    const pp_status status = pp_profile_text_read(in, "file.tsv", predictor.db);
    fclose(in);
    if (status != PP_OK) fuzz_must(strstr(pp_message(), "file.tsv") != NULL, "a refusal names the file");
    return status;
}

static char *written(size_t *size)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, size);
    const pp_status status = pp_profile_text_write(predictor.db, out);
    fclose(out);
    fuzz_must(status == PP_OK || strstr(pp_message(), "no profile") != NULL, "what was read can be written");
    if (status == PP_OK) return text;
    free(text);
    return NULL;
}

static void predict(void)
{
    struct pp_prediction prediction;
    if (pp_predict(&predictor, &points[0], false, &prediction) != PP_OK) return;
    fuzz_must(prediction.result.metrics.makespan_ns >= 0, "time does not run backwards");
    pp_prediction_free(&prediction);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t once_size, twice_size;
    if (size == 0) return 0;
    if (take((const char *)data, size) != PP_OK) return 0;
    predict();
    char *once = written(&once_size);
    if (!once) return 0;
    fuzz_must(take(once, once_size) == PP_OK, "what was written is read");
    char *twice = written(&twice_size);
    fuzz_must(twice && once_size == twice_size && memcmp(once, twice, once_size) == 0, "it is the same");
    free(once);
    free(twice);
    return 0;
}
