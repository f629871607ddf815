/* SPDX-License-Identifier: Apache-2.0
 *
 * Options as on a command line.
 */
#ifndef PP_TESTS_CONFIG_CASE_H
#define PP_TESTS_CONFIG_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/options/config.h"

/* Texts of the config stay until the next call. */
static inline pp_status parse(unsigned tool, const char *line, struct pp_config *out)
{
    enum { MOST_WORDS = 64 };
    static char words[512];
    char *argv[MOST_WORDS] = {"program"};
    int argc = 1;
    const char *operand;
    assert_true(strlen(line) < sizeof words);
    strcpy(words, line);
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) {
        assert_true(argc < MOST_WORDS - 1);
        argv[argc++] = word;
    }
    return pp_config_parse(tool, argc, argv, out, &operand);
}

/* The message has these words. */
static inline void refused(const char *line, const char *message)
{
    struct pp_config c;
    assert_int_equal(parse(PP_PPSIM, line, &c), PP_USAGE);
    if (!strstr(pp_message(), message)) fail_msg("'%s' gave '%s'", line, pp_message());
}

#endif
