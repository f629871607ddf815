/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers for what safetensors files without checksums hold.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "exec/weights.h"
#include "exec/weights_sums.h"

enum { BYTES = 2 * PP_PIECE_BYTES + 100 }; /* of the data */
static const char header[] = "{\"a\":{\"dtype\":\"F32\"}}";

/* A file without checksums; `changed`: place of a byte of the data that is another one, -1: none is. */
static void make(const char *with, uint64_t said_length, long bytes, long changed)
{
    FILE *file = fopen("file.safetensors", "wb");
    assert_non_null(file);
    fwrite(&said_length, 1, sizeof said_length, file);
    fwrite(with, 1, strlen(with), file);
    for (long i = 0; i < bytes; i++) fputc(i == changed, file);
    assert_int_equal(fclose(file), 0);
}

static uint64_t content(void)
{
    uint64_t number;
    if (pp_weights_content("file.safetensors", &number) != PP_OK) fail_msg("%s", pp_message());
    return number;
}

static uint64_t content_of(const char *with, long bytes, long changed)
{
    make(with, strlen(with), bytes, changed);
    return content();
}

/* A page of each MiB of the file is looked at. */
static void equal_files_have_equal_numbers(void **state)
{
    (void)state;
    const uint64_t whole = content_of(header, BYTES, -1);
    const long before = (long)sizeof(uint64_t) + (long)strlen(header), second = PP_PIECE_BYTES - before;
    assert_true(content_of(header, BYTES, -1) == whole);
    assert_true(content_of(header, BYTES - 1, -1) != whole);
    assert_true(content_of("{\"b\":{\"dtype\":\"F32\"}}", BYTES, -1) != whole);
    assert_true(content_of(header, BYTES, 0) != whole);
    assert_true(content_of(header, BYTES, second) != whole);
    assert_true(content_of(header, BYTES, second + 4095) != whole);
    assert_true(content_of(header, BYTES, second + 4096) == whole);
    assert_true(content_of(header, BYTES, BYTES - 1) != whole);
}

static void expect(pp_status status, const char *what)
{
    uint64_t number;
    assert_int_equal(pp_weights_content("file.safetensors", &number), status);
    if (!strstr(pp_message(), what)) fail_msg("'%s' is not in: %s", what, pp_message());
}

static void other_files_are_refused(void **state)
{
    (void)state;
    make(header, UINT64_MAX, 8, -1);
    expect(PP_INPUT, "file.safetensors is no safetensors file, or truncated: its header would have");
    make(header, strlen(header) + 9, 8, -1);
    expect(PP_INPUT, "is no safetensors file, or truncated");
    assert_int_equal(truncate("file.safetensors", 5), 0);
    expect(PP_INPUT, "is no safetensors file: only 5 bytes long");
    unlink("file.safetensors");
    expect(PP_INPUT, "cannot open file.safetensors");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(equal_files_have_equal_numbers),
                                       cmocka_unit_test(other_files_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
