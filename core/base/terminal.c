/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

int pp_terminal_columns(void)
{
    struct winsize size;
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
    return size.ws_col;
}
