/* SPDX-License-Identifier: Apache-2.0
 *
 * No output is an input or another output, whatever the option and however the file is named.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <fcntl.h>

#include "core/options/distinct_files.h"

/* words: options separated by blanks; no preset is named, so that of the program counts. */
static pp_status check(unsigned tool, const char *words, const char *operand)
{
    char text[256], *argv[16] = {(char[]){"program"}};
    static struct pp_config config;
    int argc = 1;
    snprintf(text, sizeof text, "%s", words);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    if (pp_config_parse(tool, argc, argv, &config, NULL) != PP_OK) fail_msg("%s: %s", words, pp_message());
    return pp_check_distinct_files(&config, tool, operand);
}

static void refused(unsigned tool, const char *words, const char *operand, const char *one, const char *other)
{
    if (check(tool, words, operand) != PP_USAGE) fail_msg("%s: not refused", words);
    if (!strstr(pp_message(), one) || !strstr(pp_message(), other)) fail_msg("%s: %s", words, pp_message());
}

static void allowed(unsigned tool, const char *words)
{
    if (check(tool, words, NULL) != PP_OK) fail_msg("%s: %s", words, pp_message());
}

static void make(const char *name)
{
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

/* In each program one file, of an option or of the operand, is compared with those of all other options. */
static void every_option_that_names_a_file_is_compared(void **state)
{
    (void)state;
    static const struct {
        unsigned tool;
        const char *option, *words, *operand;
    } programs[] = {{PP_PPSIM, "db", "--db one", NULL},
                    {PP_PPEXEC, "save", "--save one", NULL},
                    {PP_PPPROF, "db", "--db one", NULL},
                    {PP_PPREPORT, "", "", "one"}};
    char words[128], named[64];
    int compared = 0;
    for (int i = 0; i < pp_config_nrows; i++)
        for (size_t p = 0; p < sizeof programs / sizeof *programs; p++) {
            const struct pp_opt *row = &pp_config_rows[i];
            if (!row->arg || strcmp(row->arg, "FILE") != 0 || !(row->tools & programs[p].tool)) continue;
            if (strcmp(row->name, programs[p].option) == 0) continue;
            if (strcmp(row->name, "init") == 0) continue; /* it may be the file of --save */
            snprintf(words, sizeof words, "--%s one %s", row->name, programs[p].words);
            snprintf(named, sizeof named, "--%s (one)", row->name);
            refused(programs[p].tool, words, programs[p].operand, named, "same file");
            compared++;
        }
    assert_true(compared >= 5);
}

static void names_do_not_deceive(void **state)
{
    (void)state;
    static const char *const names[] = {"old", "./old", "folder/../old", "soft", "hard", "chain", "away/old"};
    static const char *const links[] = {"soft", "hard", "chain", "away", "dangling"};
    char words[128];
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) unlink(links[i]);
    mkdir("folder", 0777);
    make("old");
    unlink("new");
    assert_int_equal(symlink("old", "soft"), 0);
    assert_int_equal(symlink("./soft", "chain"), 0);
    assert_int_equal(symlink(".", "away"), 0);
    assert_int_equal(symlink("away/new", "dangling"), 0);
    assert_int_equal(link("old", "hard"), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(words, sizeof words, "--db old --save %s", names[i]);
        refused(PP_PPEXEC, words, NULL, "--db (old)", "--save (");
    }
    refused(PP_PPEXEC, "--db new --save dangling", NULL, "--db (new)", "--save (dangling)");
    refused(PP_PPEXEC, "--db ./new --save away/new", NULL, "--db (./new)", "--save (away/new)");
    allowed(PP_PPEXEC, "--db new --save folder/new");
    allowed(PP_PPEXEC, "--db new --save no/such/new");
    refused(PP_PPEXEC, "--db no/such/new --save ./no//such/new", NULL, "--db (no/", "--save (./no/");
}

static void files_that_belong_to_others_are_compared(void **state)
{
    (void)state;
    refused(PP_PPEXEC, "--save w --save-every 1 --db w.checkpoint", NULL, "--save (w.checkpoint)", "--db (");
    refused(PP_PPEXEC, "--save w --resume --db w.checkpoint.lock", NULL, "--save (w.checkpoint.lock)", "--db (");
    refused(PP_PPPROF, "--algorithms a --db a.lock", NULL, "--algorithms (a.lock)", "--db (");
    refused(PP_PPEXEC, "--save r.db-wal --db r.db", NULL, "--save (r.db-wal)", "--db (r.db-wal)");
    mkdir("text", 0777);
    refused(PP_PPEXEC, "--data text --save text/train.bin", NULL, "--save (text/train.bin)", "--data (text/train.bin)");
    refused(PP_PPEXEC, "--schedule mine.csv --save mine.csv", NULL, "--schedule (mine.csv)", "--save (");
    refused(PP_PPSIM, "--machine h100,./mine.json --db mine.json", NULL, "--machine (./mine.json)", "--db (");
    refused(PP_PPSIM, "--times blocks.tsv --db blocks.tsv", NULL, "--times (blocks.tsv)", "--db (");
    refused(PP_PPSIM, "--times blocks.tsv,0.5 --db ./blocks.tsv", NULL, "--times (blocks.tsv)", "--db (");
    allowed(PP_PPSIM, "--times 1,2,3 --db 1,2,3");
    refused(PP_PPPROF, "--algorithms pp.db", NULL, "--algorithms (pp.db)", "the database (pp.db)");
    refused(PP_PPREPORT, "--chrome pp.db", NULL, "--chrome (pp.db)", "the database (pp.db)");
    refused(PP_PPREPORT, "--chrome r.db-wal", "r.db", "--chrome (r.db-wal)", "the database (r.db-wal)");
    refused(PP_PPEXEC, "--split time --save pp.db", NULL, "--save (pp.db)", "the database (pp.db)");
}

static void what_spoils_nothing_is_allowed(void **state)
{
    (void)state;
    make("weights");
    make("data");
    allowed(PP_PPEXEC, "--init weights --save weights");
    allowed(PP_PPEXEC, "--init data --algorithms data --save w"); /* both are only read */
    allowed(PP_PPEXEC, "--save w --db w.checkpoint");             /* no checkpoint is made */
    allowed(PP_PPEXEC, "--save /dev/null --db run.db --algorithms /dev/null");
    allowed(PP_PPEXEC, "--save pp.db");
    allowed(PP_PPSIM, "--machine h100 --db h100");
    allowed(PP_PPSIM, "--profile data --schedule gpipe");
}

/* What is said of `option` while standard output is `output`, which is closed. */
static void expect_output(int output, const char *option, const char *expected)
{
    char message[PP_MESSAGE_BYTES];
    const int kept = dup(STDOUT_FILENO);
    fflush(stdout);
    if (kept < 0 || dup2(output, STDOUT_FILENO) < 0) fail();
    const pp_status status = check(PP_PPEXEC, option, NULL);
    snprintf(message, sizeof message, "%s", pp_message());
    fflush(stdout);
    assert_int_equal(dup2(kept, STDOUT_FILENO), STDOUT_FILENO);
    close(kept);
    close(output);
    assert_int_equal(status, PP_USAGE);
    assert_non_null(strstr(message, expected));
}

static void standard_output_is_an_output(void **state)
{
    int ends[2];
    (void)state;
    make("printed");
    expect_output(open("printed", O_WRONLY), "--save ./printed", "--save (./printed) and standard output");
    assert_int_equal(pipe(ends), 0);
    expect_output(ends[1], "--save /dev/stdout", "--save (/dev/stdout) and standard output");
    close(ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_that_names_a_file_is_compared),
        cmocka_unit_test(names_do_not_deceive),
        cmocka_unit_test(files_that_belong_to_others_are_compared),
        cmocka_unit_test(what_spoils_nothing_is_allowed),
        cmocka_unit_test(standard_output_is_an_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
