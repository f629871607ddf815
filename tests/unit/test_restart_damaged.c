/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoint files: every way in which one can be wrong.
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

#include "exec/weights_sums.h"
#include "restart_case.h"

enum { MOST = 1 << 16 };

static size_t slurp(char *bytes)
{
    FILE *file = fopen(FILE_NAME, "rb");
    assert_non_null(file);
    size_t n = fread(bytes, 1, MOST, file);
    assert_int_equal(fclose(file), 0);
    return n;
}

static void spill(const char *bytes, size_t n)
{
    FILE *file = fopen(FILE_NAME, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* Wherever a file ends too early, it is refused with a message that names it. */
static void truncated_anywhere(void **state)
{
    (void)state;
    static char bytes[MOST];
    save(&evaluated);
    for (size_t n = slurp(bytes), kept = 0; kept < n; kept++) {
        spill(bytes, kept);
        refused(&identity, FILE_NAME);
    }
}

/* All that a run reads when it goes on. */
static pp_status read_all(void)
{
    struct pp_weights_reader *reader = NULL;
    struct pp_restart_state read;
    float got[6];
    PP_TRY(read_it(&identity, &read));
    struct pp_tensor all[4] = {tensors[0], tensors[1], tensors[0], tensors[1]};
    const struct pp_model file = {.ntensors = 4, .tensors = all, .parameters = 2 * FLOATS};
    for (int i = 2; i < 4; i++) snprintf(all[i].name, sizeof all[i].name, "best.%.50s", tensors[i - 2].name);
    PP_TRY(pp_weights_open(FILE_NAME, &file, &reader));
    pp_status status = PP_OK;
    for (int i = 0; i < 4 && status == PP_OK; i++) status = pp_weights_read(reader, i, 0, all[i].elements, got);
    pp_weights_close(reader);
    return status;
}

/* One byte of the file is another one: header, checksums, weights, best weights. */
static void one_byte_anywhere(void **state)
{
    (void)state;
    static const unsigned char flips[] = {0x01, 0x20};
    static char bytes[MOST];
    save(&evaluated);
    assert_int_equal(read_all(), PP_OK);
    const size_t n = slurp(bytes);
    for (size_t i = 0; i < n; i++)
        for (size_t f = 0; f < sizeof flips; f++) {
            bytes[i] = (char)(bytes[i] ^ flips[f]);
            spill(bytes, n);
            if (read_all() == PP_OK) fail_msg("byte %zu of %zu, changed by %02x, is not seen", i, n, flips[f]);
            assert_non_null(strstr(pp_message(), FILE_NAME));
            bytes[i] = (char)(bytes[i] ^ flips[f]);
        }
}

static void the_damaged_tensor_is_named(void **state)
{
    (void)state;
    static const struct {
        int from_end; /* byte */
        const char *what;
    } cases[] = {{1, "'best.decoder.bias'"},
                 {24, "'best.embedding.weight'"},
                 {40, "'decoder.bias'"},
                 {72, "'embedding.weight' has not the checksum that it was written with (in bytes "}};
    static char bytes[MOST];
    save(&evaluated);
    const size_t n = slurp(bytes);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *at = &bytes[n - (size_t)cases[i].from_end];
        *at ^= 4;
        spill(bytes, n);
        assert_int_equal(read_all(), PP_INPUT);
        if (!strstr(pp_message(), cases[i].what)) fail_msg("'%s' is not in: %s", cases[i].what, pp_message());
        *at ^= 4;
    }
}

/* As a program would have written the header that is there now. */
static void mend_header(char *bytes)
{
    uint64_t length;
    memcpy(&length, bytes, sizeof length);
    char *header = bytes + sizeof length, *digits = pp_sums_find(header, length);
    assert_non_null(digits);
    pp_sum_write(pp_sum_of_header(header, length, digits), digits);
}

/* As a file is without checksums, which names none. Same length, so that the header stays in its place. */
static void forget_sums(char *bytes, size_t n, const char *version)
{
    char *at = memmem(bytes, n, "\"crc32 of", 9);
    assert_non_null(at);
    memcpy(at, "\"cut32 of", 9);
    at = memmem(bytes, n, "checkpoint\":\"2\"", 15);
    assert_non_null(at);
    at[13] = version[0];
}

static void spoilt_state(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *what;
    } cases[] = {
        {"\"step\":\"7\"", "\"step\":\"x\"", "its 'step' is x"},
        {"\"step\":\"7\"", "\"step\":\"\" ", "its 'step' is "},
        {"\"step\":\"7\"", "\"stop\":\"7\"", "its 'step' is missing"},
        {"\"step\":\"7\"", "\"step\":77 ", "its 'step' is missing"},
        {"\"epoch\":\"2\"", "\"epoch\":\"-\"", "its 'epoch' is -"},
        {"\"batches of the epoch\":\"3\"", "\"batches of the epoch\":\".\"", "its 'batches of the epoch' is ."},
        {"\"epoch\":\"2\"", "\"epoch\":\"8\"", "its 'epoch' is 8"},
        {"\"batches of the epoch\":\"3\"", "\"batches of the epoch\":\"9\"", "its 'batches of the epoch' is 9"},
        {"line\":\"2\"", "line\":\"-\"", "is damaged"},
        {"\"learning rate\":\"0x", "\"learning rate\":\"0z", "'learning rate'"},
        {"\"learning rate\":\"0x1.3333333333334p-2\"", "\"learning rate\":\"nan\"                 ",
         "'learning rate' is nan"},
        {"\"best validation loss\":\"0x1.5555555555555p-2\"", "\"best validation loss\":\"nan\"                 ",
         "'best validation loss' is nan"},
        {"\"best validation loss\":\"0x1.5555555555555p-2\"", "\"best validation loss\":\"inf\"                 ",
         "'best.embedding.weight'"},
        {"\"best.decoder.bias\"", "\"next.decoder.bias\"", "'best.decoder.bias'"},
        {"\"__metadata__\"", "\"__metadatum_\"", "no 'ppkit checkpoint'"},
        {"\"--seed\":\"1\"", "\"--sead\":\"1\"", "no '--seed'"},
        {"\"F32\"", "\"F16\"", "F16"},
    };
    static char bytes[MOST];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        save(&evaluated);
        size_t n = slurp(bytes);
        char *at = memmem(bytes, n, cases[i].from, strlen(cases[i].from));
        if (!at) fail_msg("%s is not in the file", cases[i].from);
        assert_int_equal(strlen(cases[i].from), strlen(cases[i].to));
        memcpy(at, cases[i].to, strlen(cases[i].to));
        mend_header(bytes);
        spill(bytes, n);
        refused(&identity, cases[i].what);
    }
}

/* The first version has none; the second always does. */
static void without_checksums(void **state)
{
    (void)state;
    static char bytes[MOST];
    static const char *const versions[] = {"1", "2", "3"}, *const what[] = {NULL, "no checksums", "of version 3"};
    for (int i = 0; i < 3; i++) {
        save(&evaluated);
        const size_t n = slurp(bytes);
        forget_sums(bytes, n, versions[i]);
        spill(bytes, n);
        if (what[i])
            refused(&identity, what[i]);
        else
            assert_int_equal(read_all(), PP_OK);
    }
}

static void other_kinds_of_files(void **state)
{
    (void)state;
    spill("nonsense", 8);
    refused(&identity, "no safetensors file");
    unlink(FILE_NAME);
    mkdir(FILE_NAME, 0777);
    refused(&identity, "not a regular file");
    rmdir(FILE_NAME);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(truncated_anywhere),
        cmocka_unit_test(one_byte_anywhere),
        cmocka_unit_test(the_damaged_tensor_is_named),
        cmocka_unit_test(without_checksums),
        cmocka_unit_test(spoilt_state),
        cmocka_unit_test(other_kinds_of_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
