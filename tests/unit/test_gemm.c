/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products against their definition, and how OpenBLAS is loaded.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/backend.h"
#include "tests/unit/kernel_case.h"

/* Functions of OpenBLAS that were looked for; how often the number of its threads was set, and to what. */
static int looked_for, set, threads;
static void (*set_threads)(int n);

static void count_set(int n)
{
    set++;
    threads = n;
    set_threads(n);
}

void *__real_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name)
{
    void *symbol = __real_dlsym(library, name), *counted;
    void (*counting)(int n) = count_set;
    looked_for++;
    if (!symbol || strcmp(name, "openblas_set_num_threads") != 0) return symbol;
    memcpy(&set_threads, &symbol, sizeof symbol);
    memcpy(&counted, &counting, sizeof counted);
    return counted;
}

static void *open_device(void *arg)
{
    const struct pp_backend *cpu = arg;
    const struct pp_device_spec spec = {.threads = 2};
    struct pp_device *device;
    if (cpu->open(&spec, &device) != PP_OK) return arg;
    cpu->close(device);
    return NULL;
}

/* Who finds the device has loaded the library; workers only say how many threads they want, and the first sets it. */
static void test_loaded_before_workers(void **state)
{
    (void)state;
    enum { WORKERS = 4 };
    const struct pp_backend *cpu;
    pthread_t worker[WORKERS];
    assert_int_equal(looked_for, 0);
    assert_int_equal(pp_backend_find("cpu", &cpu), PP_OK);
    const int loaded = looked_for;
    assert_true(loaded > 0);
    for (int i = 0; i < WORKERS; i++) assert_int_equal(pthread_create(&worker[i], NULL, open_device, (void *)cpu), 0);
    for (int i = 0; i < WORKERS; i++) {
        void *failed;
        pthread_join(worker[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(looked_for, loaded);
    assert_int_equal(set, 1);
    assert_int_equal(threads, 2);
}

static const int sizes[][3] = {{1, 1, 1}, {5, 7, 3}, {36, 108, 36}, {35, 17, 60}, {3, 100, 12}, {64, 65, 66}};

static double element(enum pp_gemm_op op, const int *mnk, const float *a, const float *b, int i, int j)
{
    double sum = 0;
    for (int l = 0; l < mnk[2]; l++)
        sum += (double)(op == PP_GEMM_TN ? a[l * mnk[0] + i] : a[i * mnk[2] + l]) *
               (op == PP_GEMM_NT ? b[j * mnk[2] + l] : b[l * mnk[1] + j]);
    return sum;
}

/* times: see kernels/kernels.h. */
static void check_product(const struct pp_cpu_isa *isa, enum pp_gemm_op op, const int *mnk, enum pp_gemm_mode mode,
                          bool adds, int times)
{
    const int m = mnk[0], n = mnk[1], k = mnk[2], all = times > 0 ? times : 1;
    float *a = case_floats(all * m * k, 1), *b = case_floats(all * n * k, 2), *c = case_floats(all * m * n, 3),
          *before = case_copy(c, all * m * n);
    struct pp_frame frame = case_frame();
    const bool add = mode == PP_GEMM_ADD || (mode == PP_GEMM_GRADIENT && adds);
    struct pp_call call = {.kernel = PP_KERNEL_GEMM_NT + (int)op, .adds = adds, .gemm = {m, n, k, mode, 0, times}};
    struct pp_cpu_call product = {&call, &frame, .p = {c, a, b}};
    isa->run[call.kernel](&product);
    for (int i = 0; i < all * m * n; i++) {
        const int at = i / (m * n), row = i % (m * n) / n;
        const double expected = element(op, mnk, a + at * m * k, b + at * n * k, row, i % n) + (add ? before[i] : 0);
        assert_near(c + i, &expected, 1, 1e-5);
    }
    case_free(a, b, c, before, NULL);
}

static void test_products(void **state)
{
    (void)state;
    assert_int_equal(pp_gemm_open(1), PP_OK);
    FOR_EACH_ISA(isa)
    for (int op = PP_GEMM_NT; op <= PP_GEMM_TN; op++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (int mode = PP_GEMM_WRITE; mode <= PP_GEMM_GRADIENT; mode++)
                for (int times = 0; times <= 3; times++) {
                    check_product(isa, op, sizes[i], mode, false, times);
                    check_product(isa, op, sizes[i], mode, true, times);
                }
}

/* An inherited OPENBLAS_CORETYPE is not obeyed: main sets one that would show in the description. */
static void test_inherited_core_is_ignored(void **state)
{
    (void)state;
    assert_int_equal(pp_gemm_open(2), PP_OK);
    assert_int_equal(pp_gemm_open(1), PP_OK);
    assert_non_null(strstr(pp_gemm_describe(), "OpenBLAS"));
    assert_null(strstr(pp_gemm_describe(), "Prescott"));
}

int main(void)
{
    setenv("OPENBLAS_CORETYPE", "Prescott", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loaded_before_workers),
        cmocka_unit_test(test_inherited_core_is_ignored),
        cmocka_unit_test(test_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
