/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_emulator.h"

void in_processes(int processes, void (*body)(int process), const char *const *settings)
{
    pid_t child[8];
    for (int i = 0; i < processes; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (child[i]) continue;
        for (const char *const *s = settings; s && *s; s++) putenv((char *)(uintptr_t)*s);
        body(i);
        exit(0);
    }
    int bad = 0;
    for (int i = 0; i < processes; i++) {
        int state;
        assert_true(waitpid(child[i], &state, 0) == child[i]);
        bad += !WIFEXITED(state) || WEXITSTATUS(state) != 0;
    }
    assert_int_equal(bad, 0);
}
