/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/printable.h"
#include "core/base/wrap.h"

enum { LINE_BYTES = 2048, NOTE_INDENT = 2 };

static const int64_t progress_interval_ns = 100 * 1000 * 1000;

/* One line at a time, whichever thread writes it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *program_name = "ppkit";
static bool only_errors, progress_shown;
static int64_t progress_ns;

void pp_log_init(const char *program, bool quiet)
{
    program_name = program;
    only_errors = quiet;
}

static void clear_progress(void)
{
    if (progress_shown) fputs("\r\033[K", stderr);
    progress_shown = false;
}

static void print_text(const char *text)
{
    pthread_mutex_lock(&lock);
    clear_progress();
    fputs(text, stderr);
    fflush(stderr);
    pthread_mutex_unlock(&lock);
}

/* The line is put together first and printed with one call, which the C library passes on in one piece, so that lines
 * of several processes on one terminal hardly mix. The lock keeps lines of threads apart. */
static void write_line(const char *prefix, const char *kind, const char *fmt, va_list args)
{
    char line[LINE_BYTES + 1];
    size_t used = (size_t)snprintf(line, LINE_BYTES, "%s%s%s", prefix, *prefix ? ": " : "", kind);
    vsnprintf(line + used, LINE_BYTES - used, fmt, args);
    pp_printable(line); /* it may have names from foreign files */
    strcat(line, "\n");
    print_text(line);
}

void pp_error(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    write_line(program_name, "", fmt, args);
    va_end(args);
}

void pp_warn(const char *fmt, ...)
{
    if (only_errors) return;
    va_list args;
    va_start(args, fmt);
    write_line(program_name, "warning: ", fmt, args);
    va_end(args);
}

void pp_info(const char *fmt, ...)
{
    if (only_errors) return;
    va_list args;
    va_start(args, fmt);
    write_line("", "", fmt, args);
    va_end(args);
}

/* Without memory for a stream it is one line. */
void pp_info_wrapped(const char *fmt, ...)
{
    char text[LINE_BYTES], lines[2 * LINE_BYTES];
    va_list args;
    if (only_errors) return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    FILE *stream = fmemopen(lines, sizeof lines, "w");
    if (!stream) {
        pp_info("%s", text);
        return;
    }
    pp_wrap(stream, pp_printable(text), 0, NOTE_INDENT);
    fclose(stream);
    print_text(lines);
}

void pp_progress(const char *fmt, ...)
{
    if (only_errors || !isatty(STDERR_FILENO)) return;
    pthread_mutex_lock(&lock);
    int64_t now = pp_now_ns();
    if (!fmt) {
        clear_progress();
    } else if (now - progress_ns >= progress_interval_ns) {
        va_list args;
        va_start(args, fmt);
        fputs("\r\033[K", stderr);
        vfprintf(stderr, fmt, args);
        va_end(args);
        progress_shown = true;
        progress_ns = now;
    }
    fflush(stderr);
    pthread_mutex_unlock(&lock);
}

void pp_show_tasks(const char *what, int64_t i, int64_t n)
{
    static const double million = 1e6;
    if (i == n)
        pp_progress(NULL);
    else
        pp_progress("%s: %.0f of %.0f million tasks", what, (double)i / million, (double)n / million);
}
