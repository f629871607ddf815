/* SPDX-License-Identifier: Apache-2.0
 *
 * The registry of devices and its loader. FAKE_1 ... FAKE_5: tests/unit/fake_plugin.c, compiled five ways.
 */
#include "kernels/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/log.h"
#include "core/options/config.h"
#include "core/options/devices.h"
#include "core/options/listing.h"

static void use_plugin(const char *file, const char *why)
{
    setenv("PPKIT_CUDA_BACKEND", file, 1);
    if (why)
        setenv("FAKE_WHY", why, 1);
    else
        unsetenv("FAKE_WHY");
}

/* find() fails, with a message that says all of the texts. */
static void assert_refused(const char *name, pp_status status, const char *text, const char *more)
{
    const struct pp_backend *backend = (const struct pp_backend *)&backend;
    assert_int_equal(pp_backend_find(name, &backend), status);
    assert_null(backend);
    if (!strstr(pp_message(), text) || !strstr(pp_message(), more))
        fail_msg("'%s' does not say '%s' and '%s'", pp_message(), text, more);
}

static void test_names(void **state)
{
    (void)state;
    const struct pp_backend *backend;
    use_plugin("/no/such.so", NULL);
    assert_int_equal(pp_backend_find(NULL, &backend), PP_OK);
    assert_string_equal(backend->name, "cpu");
    assert_int_equal(pp_backend_find("cpu", &backend), PP_OK);
    assert_string_equal(backend->name, "cpu");
    assert_refused("gpu9", PP_USAGE, "--device gpu9", "auto, cuda, delay, cpu");

    assert_int_equal(pp_backend_named("cuda", &backend), PP_OK);
    assert_string_equal(backend->name, "cuda");
    assert_int_equal(pp_backend_named("auto", &backend), PP_OK);
    assert_string_equal(backend->name, "cpu");
    assert_int_equal(pp_backend_named(NULL, &backend), PP_OK);
    assert_string_equal(backend->name, "cpu");
    assert_int_equal(pp_backend_named("gpu9", &backend), PP_USAGE);
}

/* Those of core/options/devices.def and the registry's are the same. */
static void test_rows(void **state)
{
    (void)state;
    json_t *rows = pp_backend_list();
    assert_int_equal(json_array_size(rows), pp_ndevice_kinds);
    json_decref(rows);
    for (int i = 0; i < pp_ndevice_kinds; i++) {
        const struct pp_backend *backend;
        assert_int_equal(pp_backend_named(pp_device_kinds[i].name, &backend), PP_OK);
        assert_string_equal(backend->name, pp_device_kinds[i].name);
        assert_int_equal(backend->waits, pp_device_kinds[i].waits);
        if (!pp_device_kinds[i].queue) assert_null(backend->queue);
    }
}

static void test_loads(void **state)
{
    (void)state;
    const struct pp_backend *backend;
    use_plugin(FAKE_1, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pp_backend_find("cuda", &backend), PP_OK);
        assert_string_equal(backend->summary, "a fake");
        assert_int_equal(pp_backend_find("auto", &backend), PP_OK);
        assert_string_equal(backend->summary, "a fake");
    }
}

static void test_refuses(void **state)
{
    (void)state;
    use_plugin("/no/such.so", NULL);
    assert_refused("cuda", PP_UNSUPPORTED, "--device cuda: ", "PPKIT_CUDA_BACKEND=/no/such.so: No such file");
    use_plugin(FAKE_2, NULL);
    assert_refused("cuda", PP_UNSUPPORTED, FAKE_2, "belongs to another ppkit");
    use_plugin(FAKE_5, NULL);
    assert_refused("cuda", PP_UNSUPPORTED, FAKE_5, "belongs to another ppkit");
    use_plugin(FAKE_3, NULL);
    assert_refused("cuda", PP_UNSUPPORTED, FAKE_3, "is not a backend");
    use_plugin(FAKE_4, NULL);
    assert_refused("cuda", PP_UNSUPPORTED, "pp_function_of_a_missing_library", "LD_LIBRARY_PATH");
    use_plugin(FAKE_1, "a blown fuse"); /* its message is the program's */
    assert_refused("cuda", PP_UNSUPPORTED, "--device cuda: ", "because of a blown fuse");
}

/* Nothing named, and nothing beside this program. */
static void test_no_plugin(void **state)
{
    (void)state;
    unsetenv("PPKIT_CUDA_BACKEND");
    assert_refused("cuda", PP_UNSUPPORTED, "--device cuda: ", "ppkit");
}

/* Takes what was logged, from standard error. */
static void capture(FILE *file, char *text, size_t size)
{
    fflush(stderr);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
}

static void test_auto_falls_back(void **state)
{
    (void)state;
    static const struct {
        const char *file, *why, *says;
    } cases[] = {{FAKE_1, "a blown fuse", "device cpu, not cuda: because of a blown fuse\n"},
                 {FAKE_2, NULL, "belongs to another ppkit"},
                 {"/no/such.so", NULL, "No such file"},
                 {FAKE_1, NULL, ""}};
    pp_log_init("test", false);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct pp_backend *backend;
        char text[2048];
        FILE *file = tmpfile();
        const int before = dup(STDERR_FILENO);
        assert_non_null(file);
        use_plugin(cases[i].file, cases[i].why);
        dup2(fileno(file), STDERR_FILENO);
        const pp_status status = pp_backend_find("auto", &backend);
        capture(file, text, sizeof text);
        dup2(before, STDERR_FILENO);
        close(before);
        fclose(file);
        assert_int_equal(status, PP_OK);
        assert_string_equal(backend->name, *cases[i].says ? "cpu" : "cuda");
        if (!strstr(text, cases[i].says)) fail_msg("'%s' does not say '%s'", text, cases[i].says);
        const char *end = strchr(text, '\n'); /* one line, or none */
        assert_true(*cases[i].says ? end && !end[1] : !*text);
    }
}

static void test_list(void **state)
{
    (void)state;
    const struct pp_listing listings[] = {{"devices", NULL, pp_backend_list}, {0}};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    use_plugin("/no/such\xff.so", NULL);
    assert_int_equal(pp_listings_print(listings, PP_FORMAT_TABLE, out), PP_OK);
    assert_int_equal(pp_listings_print(listings, PP_FORMAT_JSON, out), PP_OK);
    use_plugin(FAKE_1, NULL);
    assert_int_equal(pp_listings_print(listings, PP_FORMAT_TABLE, out), PP_OK);
    assert_int_equal(pp_listings_print(listings, PP_FORMAT_JSON, out), PP_OK);
    assert_int_equal(pp_listings_print(listings, PP_FORMAT_TSV, out), PP_USAGE);
    fclose(out);
    assert_non_null(strstr(text, "NVIDIA GPUs; products by cuBLAS (PPKIT_CUDA_BACKEND=/no/such?.so: No such file"));
    assert_non_null(strstr(text, "\"missing\": \"PPKIT_CUDA_BACKEND=/no/such?.so: No such file"));
    assert_non_null(strstr(text, "NVIDIA GPUs; products by cuBLAS\n"));
    assert_non_null(strstr(text, "\n  cpu "));
    free(text);
}

/* Says so when it has been asked so many times. */
static int asked, patience;

static bool interrupted(void) { return ++asked > patience; }

/* Memory is touched before it is used, which of a large arena takes long. */
static void test_memory_is_interrupted(void **state)
{
    (void)state;
    enum { BYTES = 64 << 20 };
    const struct pp_device_spec spec = {.threads = 1, .interrupted = interrupted};
    const struct pp_backend *cpu;
    struct pp_device *device;
    void *memory = &device;
    assert_int_equal(pp_backend_find("cpu", &cpu), PP_OK);
    assert_int_equal(cpu->open(&spec, &device), PP_OK);
    patience = 3;
    assert_int_equal(cpu->alloc(device, BYTES, &memory), PP_INTERRUPTED);
    assert_null(memory);
    assert_int_equal(asked, patience + 1);
    patience = INT32_MAX;
    assert_int_equal(cpu->alloc(device, BYTES, &memory), PP_OK);
    cpu->release(device, memory, BYTES);
    cpu->close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),     cmocka_unit_test(test_rows),
        cmocka_unit_test(test_loads),     cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_no_plugin), cmocka_unit_test(test_auto_falls_back),
        cmocka_unit_test(test_list),      cmocka_unit_test(test_memory_is_interrupted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
