/* SPDX-License-Identifier: Apache-2.0 */
#include "core/options/main.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/launcher.h"
#include "core/base/log.h"
#include "core/options/distinct_files.h"

static char last_words[64]; /* made beforehand: a signal handler may write() it, but not format it */
static bool one_of_many;    /* a launcher started this process together with others */

static void prepare_last_words(const char *program)
{
    one_of_many = pp_launched_processes() > 1;
    if (pp_launched_rank() > 0) return; /* the first process speaks for all that a launcher ends */
    snprintf(last_words, sizeof last_words, "%s%s: stopped by a signal\n", isatty(STDERR_FILENO) ? "\n" : "", program);
}

/* No result can be half printed: results are printed at the end, all at once. */
void pp_end_by_signal(void)
{
    const ssize_t said = write(STDERR_FILENO, last_words, strlen(last_words));
    (void)said; /* the process ends in any case; this keeps the compiler from warning */
    _exit(pp_exit_code(PP_INTERRUPTED));
}

enum pp_turn pp_signal_turn(_Atomic int64_t *first_ns)
{
    enum { SOON_NS = 500000000 };
    const int64_t now = pp_now_ns();
    int64_t first = 0;
    if (atomic_compare_exchange_strong(first_ns, &first, now)) return PP_TURN_FIRST;
    return now - first < SOON_NS ? PP_TURN_SAME : PP_TURN_IMPATIENT;
}

/* Before run() has met the other processes, SIGTERM of a launcher means that one of them has failed, and said why. */
static void on_signal(int number)
{
    if (one_of_many && number == SIGTERM) _exit(pp_exit_code(PP_INTERRUPTED));
    pp_end_by_signal();
}

pp_status pp_catch_signals(void (*handler)(int), int flags)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP /* the terminal is gone */};
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, before;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int failed = sigaction(numbers[i], NULL, &before);
        if (!failed && before.sa_handler != SIG_IGN) failed = sigaction(numbers[i], &action, NULL);
        if (failed) return pp_fail(PP_IO, "cannot catch signal %d: %s", numbers[i], strerror(errno));
    }
    return PP_OK;
}

/* Answers --help, --version or --list. *answered: one of them was given. */
static pp_status answer(const struct pp_main *program, bool *answered)
{
    const struct pp_config *config = program->config;
    *answered = true;
    if (pp_config_answer(config, program->info, stdout)) return PP_OK;
    if (config->list) return pp_listings_print(program->listings, config->format, stdout);
    *answered = false;
    return PP_OK;
}

pp_status pp_flush_output(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return PP_OK;
    return pp_fail(PP_IO, "cannot write to standard output; is the disk full?");
}

/* Results need standard output, and the next file that is opened takes the number of a stream that is closed: what is
 * printed would be written into it. */
static pp_status check_streams(void)
{
    if (fcntl(STDIN_FILENO, F_GETFD) < 0) (void)open("/dev/null", O_RDONLY);
    const int mode = fcntl(STDOUT_FILENO, F_GETFL);
    if (mode >= 0 && fcntl(STDERR_FILENO, F_GETFD) < 0) (void)open("/dev/null", O_WRONLY);
    if (mode >= 0 && (mode & O_ACCMODE) != O_RDONLY) return PP_OK;
    return pp_fail(PP_IO, "standard output is %s: results could not be printed",
                   mode < 0 ? "closed" : "not open for writing");
}

static pp_status parse(const struct pp_main *program, int argc, char **argv, const char **operand)
{
    const struct pp_program_info *info = program->info;
    PP_TRY(check_streams());
    PP_TRY(pp_catch_signals(on_signal, 0));
    return pp_config_parse(info->tool, argc, argv, program->config, *info->operands ? operand : NULL);
}

/* What one process of a launcher finds wrong before it has met the others, they usually find, too: then the first one
 * tells it, and the launcher ends the others while they wait here. */
static void tell_failure(void)
{
    if (pp_launched_rank() > 0) pp_wait_for_launcher();
    pp_error("%s", pp_message());
}

int pp_main(const struct pp_main *program, int argc, char **argv)
{
    const char *operand = NULL;
    bool answered = false, begun = false;
    pp_log_init(program->info->name, false);
    prepare_last_words(program->info->name);
    signal(SIGXFSZ, SIG_IGN);
    pp_status status = parse(program, argc, argv, &operand);
    if (status == PP_OK) status = answer(program, &answered);
    if (status == PP_OK && !answered) {
        status = pp_check_distinct_files(program->config, program->info->tool, operand);
        begun = status == PP_OK;
    }
    if (begun) status = program->run(program->session, operand);
    if (status == PP_OK) status = pp_flush_output();
    if (begun && program->leave)
        program->leave(program->session, status);
    else if (status != PP_OK)
        tell_failure();
    return pp_exit_code(status);
}
