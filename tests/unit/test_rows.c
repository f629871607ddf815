/* SPDX-License-Identifier: Apache-2.0
 *
 * Results as text, where memory fails: the n-th call of Jansson or of ours (CMake has the linker wrap realloc).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/job/rows.h"

static long calls, fails_at;

static bool fails(void) { return ++calls == fails_at; }

void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size) { return fails() ? NULL : __real_realloc(old, size); }

static void *jansson_malloc(size_t size) { return fails() ? NULL : malloc(size); }

/* Long keys, so that it is at a key that most of the text is made room for. */
static json_t *make_object(void)
{
    char key[400];
    json_t *object = json_object();
    for (int i = 0; i < 20; i++) {
        memset(key, 'a' + i, sizeof key);
        key[sizeof key - 1] = '\0';
        object = pp_json_set(object, key, json_integer(i));
    }
    assert_non_null(object);
    return object;
}

static void test_no_part_of_a_text(void **state)
{
    (void)state;
    json_t *object = make_object();
    char *whole, *text;
    fails_at = 0;
    assert_int_equal(pp_json_dump(object, JSON_COMPACT, &whole), PP_OK);
    json_set_alloc_funcs(jansson_malloc, free);
    long failed = 0;
    for (bool reached = true; reached; failed += reached) {
        calls = 0;
        fails_at = failed + 1;
        const pp_status status = pp_json_dump(object, JSON_COMPACT, &text);
        reached = calls >= fails_at;
        if (status == PP_OK)
            assert_string_equal(text, whole);
        else
            assert_null(text);
        assert_int_equal(status, reached ? PP_NOMEM : PP_OK);
        free(text);
    }
    assert_true(failed > 4);
    assert_int_equal(pp_json_dump(NULL, JSON_COMPACT, &text), PP_NOMEM);
    json_set_alloc_funcs(malloc, free);
    free(whole);
    json_decref(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_part_of_a_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
