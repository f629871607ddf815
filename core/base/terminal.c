/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

int pp_terminal_columns(FILE *file)
{
    struct winsize size;
    const int descriptor = fileno(file); /* -1: of memory */
    if (descriptor < 0 || !isatty(descriptor) || ioctl(descriptor, TIOCGWINSZ, &size) != 0) return 0;
    return size.ws_col;
}
