/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules as files. What is read and accepted as a plan is a plan: its own check agrees, and, written and read again,
 * it is the same.
 */
#include "schedules/builder.h"
#include "schedules/csv.h"
#include "schedules/csv_read.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    pp_log_init("fuzz", true);
    return 0;
}

static struct pp_plan_spec spec_of(const struct pp_csv_schedule *s)
{
    return (struct pp_plan_spec){.schedule = "file",
                                 .ranks = s->ranks,
                                 .virtual_stages = s->virtual_stages,
                                 .microbatches = s->microbatches,
                                 .replicas = 1,
                                 .recv_buffers = 2,
                                 .training = true,
                                 .optimizer = true};
}

static pp_status read_plan(char *text, size_t size, struct pp_plan **plan)
{
    struct pp_csv_schedule read;
    FILE *in = fmemopen(text, size, "r");
    pp_status status = pp_csv_parse(in, "file.csv", &read);
    fclose(in);
    if (status != PP_OK) fuzz_must(strstr(pp_message(), "file.csv") != NULL, "a refusal names the file");
    const struct pp_plan_spec spec = spec_of(&read);
    if (status == PP_OK && (int64_t)read.stages * read.microbatches < 10000)
        status = pp_plan_build_orders(&spec, read.orders, read.stage_rank, plan);
    pp_csv_free(&read);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pp_plan *plan = NULL, *again = NULL;
    char *text = malloc(size + 1), *csv = NULL;
    size_t csv_size = 0;
    memcpy(text, data, size);
    if (size > 0 && read_plan(text, size, &plan) == PP_OK && plan) {
        fuzz_must(pp_plan_check(plan) == PP_OK, "the builder makes good plans");
        FILE *out = open_memstream(&csv, &csv_size);
        fuzz_must(pp_plan_csv(plan, out) == PP_OK, "a plan can be written");
        fclose(out);
        fuzz_must(read_plan(csv, csv_size, &again) == PP_OK && again && again->hash == plan->hash, "and read again");
    }
    pp_plan_free(plan);
    pp_plan_free(again);
    free(text);
    free(csv);
    return 0;
}
