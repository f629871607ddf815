/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that exist complete or not at all: what others see of them meanwhile.
 */
#include <errno.h>
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

#include "core/base/new_file.h"

/* The linker puts it in place of fsync(), which is of folders here. */
static int sync_error;
extern int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    struct stat info;
    if (fstat(fd, &info) || !S_ISDIR(info.st_mode)) fail_msg("no folder");
    errno = sync_error;
    return sync_error ? -1 : 0;
}

static int mode_of(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return (int)(info.st_mode & 0777);
}

static void write_to(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

static void check_text(const char *path, const char *text)
{
    char found[32] = "";
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    assert_non_null(fgets(found, sizeof found, in));
    assert_int_equal(fclose(in), 0);
    assert_string_equal(found, text);
}

/* From the beginning, also if a killed run has left a file of that name, and with bits that the umask takes away. */
static void it_has_the_permissions_of_what_it_replaces(void **state)
{
    (void)state;
    static const mode_t modes[] = {0600, 0640, 0666};
    for (int i = 0; i < 6; i++) {
        const mode_t mode = modes[i % 3];
        struct pp_new_file file;
        write_to("old", "old");
        assert_int_equal(chmod("old", mode), 0);
        assert_int_equal(pp_new_file_choose("--save", "old", true, &file), PP_OK);
        if (i >= 3) write_to(file.temporary, "of a killed run");
        FILE *out = pp_new_file_stream(&file);
        assert_non_null(out);
        assert_int_equal(mode_of(file.temporary), mode);
        assert_true(fputs("new", out) >= 0);
        check_text("old", "old");
        assert_int_equal(fclose(out), 0);
        assert_int_equal(pp_new_file_put(&file), 0);
        assert_string_equal(file.temporary, "");
        assert_int_equal(mode_of("old"), mode);
        check_text("old", "new");
    }
}

static void one_that_is_new_has_those_of_the_umask(void **state)
{
    (void)state;
    struct pp_new_file file;
    const mode_t before = umask(027);
    (void)unlink("new"); /* of the test's last run */
    assert_int_equal(pp_new_file_choose("--save", "new", false, &file), PP_OK);
    const int fd = pp_new_file_open(&file);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(pp_new_file_put(&file), 0);
    assert_int_equal(mode_of("new"), 0640);
    umask(before);
}

static void a_link_of_that_name_is_not_followed(void **state)
{
    (void)state;
    struct pp_new_file file;
    write_to("precious", "precious");
    assert_int_equal(pp_new_file_choose("--save", "linked", true, &file), PP_OK);
    (void)unlink(file.temporary);
    assert_int_equal(symlink("precious", file.temporary), 0);
    assert_int_equal(pp_new_file_open(&file), -1);
    assert_null(pp_new_file_stream(&file));
    check_text("precious", "precious");
    assert_int_equal(unlink(file.temporary), 0);
}

/* One that nobody may write can be replaced by whoever may write to its folder. That lies where all can reach it, which
 * the sources of a root need not. */
static void one_that_is_read_only_is_replaced(void **state)
{
    (void)state;
    struct pp_new_file file;
    char folder[] = "/tmp/ppkit-new-file-XXXXXX", old[sizeof folder + 4];
    const uid_t me = geteuid();
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chmod(folder, 0777), 0);
    snprintf(old, sizeof old, "%s/old", folder);
    write_to(old, "old");
    assert_int_equal(chmod(old, 0444), 0);
    assert_int_equal(pp_new_file_choose("--save", old, true, &file), PP_OK);
    if (me == 0) assert_int_equal(seteuid(65534), 0); /* root may write to anything */
    FILE *out = pp_new_file_stream(&file);
    assert_non_null(out);
    assert_true(fputs("new", out) >= 0);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(pp_new_file_put(&file), 0);
    if (me == 0) assert_int_equal(seteuid(me), 0);
    check_text(old, "new");
    assert_int_equal(mode_of(old), 0444);
    assert_int_equal(unlink(old), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* What a folder cannot do is no failure; what it could not do this time is one, though the file is there. */
static void a_folder_that_fails_is_told(void **state)
{
    (void)state;
    static const struct {
        int error, result;
    } cases[] = {{0, 0}, {EINVAL, 0}, {ENOTSUP, 0}, {EROFS, 0}, {EIO, -1}, {ENOSPC, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pp_new_file file;
        (void)unlink("synced");
        assert_int_equal(pp_new_file_choose("--save", "synced", true, &file), PP_OK);
        write_to(file.temporary, "new");
        sync_error = cases[i].error;
        assert_int_equal(pp_new_file_put(&file), cases[i].result);
        if (cases[i].result) assert_int_equal(errno, cases[i].error);
        check_text("synced", "new");
    }
    sync_error = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_has_the_permissions_of_what_it_replaces),
        cmocka_unit_test(one_that_is_new_has_those_of_the_umask), cmocka_unit_test(a_link_of_that_name_is_not_followed),
        cmocka_unit_test(one_that_is_read_only_is_replaced), cmocka_unit_test(a_folder_that_fails_is_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
