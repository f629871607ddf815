/* SPDX-License-Identifier: Apache-2.0
 *
 * ppreport: what a database holds, as tables, pictures and a trace for Perfetto.
 */
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "analysis/chrome.h"
#include "analysis/compare.h"
#include "analysis/picture_files.h"
#include "analysis/plot.h"
#include "analysis/why.h"
#include "core/base/log.h"
#include "core/database/db_profile_text.h"
#include "core/options/config.h"
#include "core/options/main.h"

static const struct pp_program_info info = {
    .tool = PP_PPREPORT,
    .name = "ppreport",
    .summary = "compare prediction and measurement, and draw them",
    .operands = "[DB]",
    .description = "Reads a database that ppsim, ppexec and ppprof wrote with --db (pp.db of this folder where none is "
                   "named) and prints, "
                   "for each configuration, time, bubble and memory as predicted and as measured, and for the newest "
                   "of those that were both (or the one that --run names) the times of its tasks by kind.\n\n"
                   "Pictures go to a folder beside the database, as PNG and SVG: ms/batch against chunks, bubble of "
                   "each rank, the two "
                   "timelines one above the other, memory over time. Their data and gnuplot scripts stand beside them, "
                   "to be changed and "
                   "drawn again.",
    .examples = "ppreport pp.db\ttables, and pictures in pp-plots/\n"
                "ppreport pp.db --run 7 --chrome run7.json\tone run, also as a trace for ui.perfetto.dev\n"
                "ppreport pp.db --why\twhat the gaps between prediction and measurement are made of\n"
                "ppreport h200.db --profiles > h200.tsv\ta profile that ppsim --profile reads anywhere\n"
                "ppreport pp.db --format json --no-plots\tfor programs\n",
};

static bool wants_pictures(const struct pp_config *config)
{
    return !config->no_plots && !config->profiles && (!config->why || config->plots);
}

/* Also the pictures are written to files that may be others of the run, by their names or by links. */
static pp_status check_pictures(const struct pp_config *config, const char *operand, const char *path)
{
    char *beside = NULL;
    struct pp_folder_files files = {0};
    if (!wants_pictures(config)) return PP_OK;
    PP_TRY(pp_plot_folder(path, &beside));
    files.what = config->plots ? "--plots" : "the pictures";
    files.folder = config->plots ? config->plots : beside;
    pp_status status = pp_picture_files(&files);
    if (status == PP_OK) status = pp_check_distinct_folder(config, info.tool, operand, &files);
    free(files.names);
    free(beside);
    return status;
}

/* May whoever runs this write into the folder, or make it beside the database? */
static bool may_write(const char *folder)
{
    char path[PATH_MAX];
    if (access(folder, F_OK) == 0) return access(folder, W_OK | X_OK) == 0;
    snprintf(path, sizeof path, "%s", folder);
    return access(dirname(path), W_OK | X_OK) == 0;
}

/* Pictures are an extra: without gnuplot the tables stand, and so does the exit code. So they do beside a database that
 * others own, where nobody has said where pictures are to go. */
static pp_status draw(struct pp_db *db, const struct pp_config *config, const char *path, const struct pp_table *table,
                      int64_t row)
{
    char *beside = NULL;
    if (!wants_pictures(config)) return PP_OK;
    PP_TRY(pp_plot_folder(path, &beside));
    const char *folder = config->plots ? config->plots : beside;
    pp_status status = pp_plot_all(db, table, row, folder);
    const bool others = status == PP_IO && !config->plots && !may_write(folder);
    if (status == PP_UNSUPPORTED || others) {
        pp_warn("%s%s", others ? "no pictures: " : "", pp_message());
        status = PP_OK;
    }
    free(beside);
    return status;
}

/* What goes to standard output is kept in `out` until all else is done: on failure standard output stays empty. */
static pp_status report(struct pp_db *db, const struct pp_config *config, const char *path, FILE *out)
{
    struct pp_table table = {0};
    pp_status status = pp_compare_read(db, config->run, &table);
    if (status == PP_OK)
        status = config->why ? pp_why_print(db, &table, config->format, out)
                             : pp_compare_print(db, &table, config->format, out);
    if (status == PP_OK) status = draw(db, config, path, &table, pp_compare_main(&table));
    if (status == PP_OK && config->chrome) {
        status = pp_chrome_write(db, &table, pp_compare_main(&table), config->chrome);
        if (status == PP_OK) pp_info("The trace is in %s: open it at ui.perfetto.dev.", config->chrome);
    }
    pp_table_free(&table);
    return status;
}

/* --profiles prints what ppsim --profile reads, and nothing else. */
static pp_status check_usage(const struct pp_config *config)
{
    static const size_t others[] = {PP_OPTION(run), PP_OPTION(why), PP_OPTION(plots), PP_OPTION(chrome),
                                    PP_OPTION(format)};
    for (size_t i = 0; i < sizeof others / sizeof *others && config->profiles; i++)
        if (pp_config_given_of(config, others[i]))
            return pp_fail(PP_USAGE, "--profiles prints all profiles as text, whatever --%s says; leave it out",
                           pp_config_row_of(others[i])->name);
    if (config->plots && config->no_plots)
        return pp_fail(PP_USAGE, "--plots says where pictures go, and --no-plots that there are none; leave one out");
    return PP_OK;
}

static pp_status report_file(const struct pp_config *config, const char *path)
{
    struct pp_db *db;
    char *text = NULL;
    size_t size;
    PP_TRY(pp_db_open(path, PP_DB_READ, &db));
    FILE *out = open_memstream(&text, &size);
    pp_status status = !out               ? PP_NOMEM
                       : config->profiles ? pp_profile_text_write(db, out)
                                          : report(db, config, path, out);
    if (!out || fclose(out) != 0) status = pp_fail(PP_NOMEM, "there is not enough memory for the report");
    if (status == PP_OK) fwrite(text, 1, size, stdout);
    free(text);
    (void)pp_db_close(db); /* nothing was written */
    return status;
}

static pp_status run(void *session, const char *operand)
{
    const struct pp_config *config = session;
    const char *path = operand ? operand : PP_USUAL_DB;
    PP_TRY(check_usage(config));
    PP_TRY(check_pictures(config, operand, path));
    PP_TRY(pp_config_check_database(path));
    return report_file(config, path);
}

int main(int argc, char **argv)
{
    static struct pp_config config;
    const struct pp_main program = {.info = &info, .config = &config, .run = run, .session = &config};
    return pp_main(&program, argc, argv);
}
