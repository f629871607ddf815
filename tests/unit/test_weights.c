/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors files: around once, and every way in which a file can be wrong.
 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "exec/weights.h"
#include "exec/weights_sums.h"

enum { FLOATS = 6 + 3 };

static struct pp_tensor tensors[] = {
    {.name = "embedding.weight", .ndim = 2, .shape = {2, 3}, .elements = 6},
    {.name = "decoder.bias", .ndim = 1, .shape = {3}, .elements = 3},
};
static const struct pp_model model = {.ntensors = 2, .tensors = tensors, .parameters = FLOATS};
static const float values[FLOATS] = {1, -2, 3.5f, 0, 1e-30f, 6, 7, 8, 9};

#define EMBEDDING "\"embedding.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}"
#define BIAS "\"decoder.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[24,36]}"

static void write_file(const char *header, uint64_t said_length, size_t data_bytes)
{
    FILE *file = fopen("file.safetensors", "wb");
    assert_non_null(file);
    fwrite(&said_length, 1, sizeof said_length, file);
    fwrite(header, 1, strlen(header), file);
    for (size_t i = 0; i < data_bytes; i++) fputc(i < sizeof values ? ((const unsigned char *)values)[i] : 0, file);
    assert_int_equal(fclose(file), 0);
}

static pp_status open_it(void)
{
    struct pp_weights_reader *reader = NULL;
    pp_status status = pp_weights_open("file.safetensors", &model, &reader);
    pp_weights_close(reader);
    return status;
}

static void expect(pp_status status, const char *what)
{
    assert_int_equal(open_it(), status);
    if (!strstr(pp_message(), what)) fail_msg("'%s' is not in: %s", what, pp_message());
    assert_non_null(strstr(pp_message(), "file.safetensors"));
}

static void save(const char *path)
{
    struct pp_weights_writer *writer = NULL;
    assert_int_equal(pp_weights_create(path, &model, NULL, &writer), PP_OK);
    assert_int_equal(pp_weights_append(writer, values, 4), PP_OK);
    assert_int_equal(pp_weights_append(writer, values + 4, FLOATS - 4), PP_OK);
    assert_int_equal(pp_weights_commit(writer), PP_OK);
}

static void around_once(void **state)
{
    (void)state;
    struct pp_weights_reader *reader = NULL;
    float read[6];
    save("file.safetensors");
    assert_int_equal(pp_weights_open("file.safetensors", &model, &reader), PP_OK);
    assert_int_equal(pp_weights_read(reader, 0, 0, 6, read), PP_OK);
    assert_memory_equal(read, values, sizeof read);
    assert_int_equal(pp_weights_read(reader, 1, 1, 2, read), PP_OK);
    assert_memory_equal(read, values + 7, 2 * sizeof *read);
    pp_weights_close(reader);
}

static void tensors_in_any_order(void **state)
{
    (void)state;
    const char *header = "{\"decoder.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
                         "\"embedding.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[12,36]}}   ";
    struct pp_weights_reader *reader = NULL;
    float read[3];
    write_file(header, strlen(header), 36);
    assert_int_equal(pp_weights_open("file.safetensors", &model, &reader), PP_OK);
    assert_int_equal(pp_weights_read(reader, 1, 0, 3, read), PP_OK);
    assert_memory_equal(read, values, sizeof read);
    pp_weights_close(reader);
}

static void wrong_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header, *what;
    } cases[] = {
        {"{" EMBEDDING "}", "no tensor 'decoder.bias'"},
        {"{" EMBEDDING "," BIAS ",\"layers.7.norm1.bias\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[36,36]}}",
         "'layers.7.norm1.bias'"},
        {"{" EMBEDDING ",\"decoder.bias\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[24,30]}}", "BF16"},
        {"{" EMBEDDING ",\"decoder.bias\":{\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[24,36]}}", "[1, 3]"},
        {"{" EMBEDDING ",\"decoder.bias\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[24,36]}}", "[3]"},
        {"{" EMBEDDING ",\"decoder.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[24,32]}}", "8 bytes"},
        {"{" EMBEDDING ",\"decoder.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[20,32]}}", "overlap"},
        {"{" EMBEDDING ",\"decoder.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[28,40]}}", "truncated"},
        {"{" EMBEDDING ",\"decoder.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[-4,8]}}", "data_offsets"},
        {"{" EMBEDDING ",\"decoder.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":\"x\"}}", "data_offsets"},
        {"{" EMBEDDING ",\"decoder.bias\":{\"dtype\":\"F32\",\"shape\":[3]}}", "data_offsets"},
        {"{" EMBEDDING ",\"decoder.bias\":7}", "data_offsets"},
        {"{" EMBEDDING "," EMBEDDING "}", "JSON"},
        {"[1, 2]", "JSON"},
        {"{\"a\": ", "JSON"},
        {"", "JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(cases[i].header, strlen(cases[i].header), 36);
        expect(PP_INPUT, cases[i].what);
    }
}

static void wrong_files(void **state)
{
    (void)state;
    const char *good = "{" EMBEDDING "," BIAS "}";
    write_file(good, strlen(good), 36);
    assert_int_equal(open_it(), PP_OK);
    write_file(good, strlen(good), 35);
    expect(PP_INPUT, "truncated");
    write_file(good, strlen(good), 40);
    expect(PP_INPUT, "4 bytes that belong to no tensor");
    write_file(good, 1000000, 36);
    expect(PP_INPUT, "header would have 1000000 bytes");
    write_file(good, UINT64_MAX, 36);
    expect(PP_INPUT, "header would have");
    assert_int_equal(truncate("file.safetensors", 5), 0);
    expect(PP_INPUT, "only 5 bytes");
    unlink("file.safetensors");
    expect(PP_INPUT, "cannot open");
    mkdir("file.safetensors", 0777);
    expect(PP_INPUT, "not a regular file");
    rmdir("file.safetensors");
}

/* --- checksums --- */

static void checksums_are_those_of_zlib(void **state)
{
    (void)state;
    char digits[PP_SUM_DIGITS + 1] = "";
    uint32_t sum = 0;
    assert_int_equal(pp_sum_add(0, "123456789", 9), 0xcbf43926); /* the usual example */
    assert_int_equal(pp_sum_add(pp_sum_add(0, "1234", 4), "56789", 5), 0xcbf43926);
    pp_sum_write(0xcbf43926, digits);
    assert_string_equal(digits, "cbf43926");
    assert_int_equal(pp_sum_parse(digits, &sum), PP_OK);
    assert_int_equal(sum, 0xcbf43926);
    static const char *const wrong[] = {"cbf4392", "cbf4392G", "CBF43926", ""};
    for (int i = 0; i < 4; i++) assert_int_equal(pp_sum_parse(wrong[i], &sum), PP_INPUT);
    assert_int_equal(pp_pieces(0), 0);
    assert_int_equal(pp_pieces(1), 1);
    assert_int_equal(pp_pieces(PP_PIECE_BYTES), 1);
    assert_int_equal(pp_pieces(PP_PIECE_BYTES + 1), 2);
}

/* Offset of the first byte of data. */
static long data_start(const char *path)
{
    uint64_t length;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(&length, sizeof length, 1, file), 1);
    fclose(file);
    return (long)length + 8;
}

static void flip_bit(const char *path, long bit)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, bit / 8, SEEK_SET);
    const int byte = fgetc(file);
    fseek(file, bit / 8, SEEK_SET);
    fputc(byte ^ 1 << bit % 8, file);
    assert_int_equal(fclose(file), 0);
}

/* Tensors of several pieces, written and read in other ones. */
static void large_tensors_have_many_pieces(void **state)
{
    (void)state;
    enum { ELEMENTS = 700001, SMALL = 3, PIECE = PP_PIECE_BYTES / sizeof(float) };
    struct pp_tensor two[] = {{.name = "large", .ndim = 1, .shape = {ELEMENTS}, .elements = ELEMENTS},
                              {.name = "small", .ndim = 1, .shape = {SMALL}, .elements = SMALL}};
    const struct pp_model wide = {.ntensors = 2, .tensors = two, .parameters = ELEMENTS + SMALL};
    struct pp_weights_writer *writer = NULL;
    struct pp_weights_reader *reader = NULL;
    float *numbers, *read;
    assert_int_equal(PP_NEW(&numbers, ELEMENTS + SMALL), PP_OK);
    assert_int_equal(PP_NEW(&read, ELEMENTS), PP_OK);
    for (int i = 0; i < ELEMENTS + SMALL; i++) numbers[i] = (float)i / 3;
    assert_int_equal(pp_weights_create("wide.safetensors", &wide, NULL, &writer), PP_OK);
    for (int at = 0, n; at < ELEMENTS + SMALL; at += n) {
        n = ELEMENTS + SMALL - at < 99991 ? ELEMENTS + SMALL - at : 99991;
        assert_int_equal(pp_weights_append(writer, numbers + at, n), PP_OK);
    }
    assert_int_equal(pp_weights_append(writer, numbers, 1), PP_INTERNAL);
    assert_int_equal(pp_weights_commit(writer), PP_OK);
    flip_bit("wide.safetensors", 8 * (data_start("wide.safetensors") + 2 * PP_PIECE_BYTES) + 6);
    assert_int_equal(pp_weights_open("wide.safetensors", &wide, &reader), PP_OK);
    assert_true(pp_weights_has_sums(reader));
    assert_int_equal(pp_weights_read(reader, 0, 5, 2 * PIECE - 5, read), PP_OK);
    assert_memory_equal(read, numbers + 5, (2 * PIECE - 5) * sizeof *read);
    assert_int_equal(pp_weights_read(reader, 0, ELEMENTS - 1, 1, read), PP_INPUT); /* of the piece that is damaged */
    assert_non_null(strstr(pp_message(), "tensor 'large' has not the checksum"));
    assert_int_equal(pp_weights_read(reader, 0, PIECE - 2, 4, read), PP_OK);
    assert_memory_equal(read, numbers + PIECE - 2, 4 * sizeof *read);
    assert_int_equal(pp_weights_read(reader, 1, 0, SMALL, read), PP_OK);
    assert_memory_equal(read, numbers + ELEMENTS, SMALL * sizeof *read);
    pp_weights_close(reader);
    free(numbers);
    free(read);
}

/* As another program may write it: the checksums follow the data, not the model. */
static void checksums_are_in_the_order_of_the_file(void **state)
{
    (void)state;
    char header[400], *digits;
    struct pp_weights_reader *reader = NULL;
    float read[6];
    for (int wrong = 0; wrong < 2; wrong++) {
        snprintf(header, sizeof header,
                 "{\"__metadata__\":{\"" PP_NOTE_SUMS "\":\"00000000%08x%08x\"},"
                 "\"embedding.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[12,36]},"
                 "\"decoder.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}",
                 pp_sum_add(0, values, 12), pp_sum_add(0, values + 3, 24) ^ (uint32_t)wrong);
        digits = pp_sums_find(header, strlen(header));
        assert_non_null(digits);
        pp_sum_write(pp_sum_of_header(header, strlen(header), digits), digits);
        write_file(header, strlen(header), 36);
        assert_int_equal(pp_weights_open("file.safetensors", &model, &reader), PP_OK);
        assert_int_equal(pp_weights_read(reader, 1, 0, 3, read), PP_OK);
        assert_int_equal(pp_weights_read(reader, 0, 0, 6, read), wrong ? PP_INPUT : PP_OK);
        pp_weights_close(reader);
    }
    static const char no_text[] = "{\"__metadata__\":{\"" PP_NOTE_SUMS "\":7}," EMBEDDING "," BIAS "}";
    write_file(no_text, strlen(no_text), 36);
    expect(PP_INPUT, "the header has not the checksum");
}

/* Each bit of a header, changed, is found: none switches the checksums off. */
static void no_bit_of_a_header_goes_unseen(void **state)
{
    (void)state;
    save("file.safetensors");
    assert_int_equal(open_it(), PP_OK);
    for (long bit = 0, end = 8 * data_start("file.safetensors"); bit < end; bit++) {
        flip_bit("file.safetensors", bit);
        if (open_it() != PP_INPUT) fail_msg("bit %ld has changed, and nobody sees it", bit);
        flip_bit("file.safetensors", bit);
    }
}

/* --- writing --- */

static void nothing_is_left_of_a_discarded_file(void **state)
{
    (void)state;
    struct pp_weights_writer *writer = NULL;
    struct stat before, after;
    save("kept.safetensors");
    assert_int_equal(stat("kept.safetensors", &before), 0);
    assert_int_equal(pp_weights_create("kept.safetensors", &model, NULL, &writer), PP_OK);
    assert_int_equal(pp_weights_append(writer, values, 3), PP_OK);
    pp_weights_discard(writer);
    assert_int_equal(stat("kept.safetensors", &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(system("ls kept.safetensors.*.part 2>/dev/null | grep -q ."), 256); /* grep found none */
}

static void links_stay_links(void **state)
{
    (void)state;
    static const char *const links[] = {"first.safetensors", "link.safetensors"};
    struct pp_weights_writer *writer = NULL;
    struct stat info;
    unlink("target.safetensors");
    for (int l = 0; l < 2; l++) unlink(links[l]);
    assert_int_equal(symlink("target.safetensors", links[1]), 0);
    assert_int_equal(symlink("./link.safetensors", links[0]), 0);
    for (int i = 0; i < 4; i++) { /* first to what is not there yet */
        if (i % 2 == 0) unlink("target.safetensors");
        save(i < 2 ? "./link.safetensors" : "first.safetensors");
        for (int l = 0; l < 2; l++) {
            assert_int_equal(lstat(links[l], &info), 0);
            assert_true(S_ISLNK(info.st_mode));
        }
        assert_int_equal(lstat("target.safetensors", &info), 0);
    }
    unlink(links[1]);
    assert_int_equal(symlink(links[0], links[1]), 0);
    assert_int_equal(pp_weights_check_target(links[0], false), PP_IO);
    assert_non_null(strstr(pp_message(), "first.safetensors: Too many levels of symbolic links"));
    assert_int_equal(pp_weights_create(links[0], &model, NULL, &writer), PP_IO);
    assert_int_equal(lstat(links[1], &info), 0);
    assert_true(S_ISLNK(info.st_mode));
}

static void a_full_disk_is_told(void **state)
{
    (void)state;
    struct pp_weights_writer *writer = NULL;
    pp_status status = pp_weights_create("/dev/full", &model, NULL, &writer);
    assert_int_equal(status, PP_IO);
    assert_non_null(strstr(pp_message(), "/dev/full: No space left on device"));
}

static void places_are_checked_early(void **state)
{
    (void)state;
    assert_int_equal(pp_weights_check_target("new.safetensors", false), PP_OK);
    assert_int_equal(pp_weights_check_target("no/such/folder/new.safetensors", false), PP_IO);
    assert_non_null(strstr(pp_message(), "no/such/folder"));
    assert_int_equal(pp_weights_check_target(".", false), PP_USAGE);
    assert_int_equal(pp_weights_check_target("/proc/new.safetensors", false), PP_IO);
    assert_int_not_equal(access("new.safetensors", F_OK), 0);
    assert_int_equal(system("ls new.safetensors* 2>/dev/null | grep -q ."), 256); /* nothing is left */
}

/* A temporary name is longer than its file's. The name of a checkpoint's has no process in it. */
static void names_too_long_are_found_early(void **state)
{
    (void)state;
    char name[NAME_MAX + 2] = "";
    const size_t longest = NAME_MAX - strlen(".part");
    memset(name, 'n', longest);
    assert_int_equal(pp_weights_check_target(name, true), PP_OK);
    assert_int_equal(pp_weights_check_target(name, false), PP_IO);
    assert_non_null(strstr(pp_message(), "File name too long"));
    name[longest] = 'n';
    assert_int_equal(pp_weights_check_target(name, true), PP_IO);
}

static void a_link_in_the_way_is_not_followed(void **state)
{
    (void)state;
    struct pp_weights_writer *writer = NULL;
    struct pp_notes *notes = calloc(1, sizeof *notes);
    struct stat info;
    assert_non_null(notes);
    assert_int_equal(system("echo precious > precious && ln -sf precious run.st.part"), 0);
    assert_int_equal(pp_weights_check_target("run.st", true), PP_IO);
    assert_int_equal(pp_weights_create("run.st", &model, notes, &writer), PP_IO);
    assert_int_equal(stat("precious", &info), 0);
    assert_int_equal(info.st_size, strlen("precious\n"));
    unlink("run.st.part");
    free(notes);
}

static void half_a_file_does_not_take_its_place(void **state)
{
    (void)state;
    struct pp_weights_writer *writer = NULL;
    unlink("half.safetensors");
    assert_int_equal(pp_weights_create("half.safetensors", &model, NULL, &writer), PP_OK);
    assert_int_equal(pp_weights_append(writer, values, FLOATS - 1), PP_OK);
    assert_int_equal(pp_weights_commit(writer), PP_INTERNAL);
    assert_int_not_equal(access("half.safetensors", F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(around_once),
        cmocka_unit_test(tensors_in_any_order),
        cmocka_unit_test(wrong_headers),
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(links_stay_links),
        cmocka_unit_test(nothing_is_left_of_a_discarded_file),
        cmocka_unit_test(a_full_disk_is_told),
        cmocka_unit_test(places_are_checked_early),
        cmocka_unit_test(names_too_long_are_found_early),
        cmocka_unit_test(a_link_in_the_way_is_not_followed),
        cmocka_unit_test(half_a_file_does_not_take_its_place),
        cmocka_unit_test(checksums_are_those_of_zlib),
        cmocka_unit_test(large_tensors_have_many_pieces),
        cmocka_unit_test(checksums_are_in_the_order_of_the_file),
        cmocka_unit_test(no_bit_of_a_header_goes_unseen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
