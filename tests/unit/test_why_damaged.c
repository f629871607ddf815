/* SPDX-License-Identifier: Apache-2.0
 *
 * ppreport --why of databases with values that no program writes, or that an older one did: each is refused with a
 * message, or makes no difference.
 */
#include "analysis/why.h"
#include "tests/unit/db_case.h"

/* It has transfers with slots, a norm of all, sums over replicas, and the sum of tied gradients. */
static const struct synthetic_case sample = {"interleaved", 2, 2, 4, 2, PP_CHECKPOINT_NEVER, 0.05, .tied = true};

static void make_file(void)
{
    empty_folder(NULL);
    struct pp_db *db = open_db(PP_DB_WRITE);
    synthetic_run(db, &sample, true, NULL);
    synthetic_run(db, &sample, false, NULL);
    must(pp_db_close(db));
}

/* What ppreport --why prints; text: NULL, or the caller's to free. */
static pp_status why(char **text)
{
    struct pp_db *db = open_db(PP_DB_READ);
    struct pp_table table;
    char *printed;
    size_t size;
    FILE *out = open_memstream(&printed, &size);
    must(pp_compare_read(db, 0, &table));
    const pp_status status = pp_why_print(db, &table, PP_FORMAT_TABLE, out);
    fclose(out);
    if (text) *text = printed;
    if (!text) free(printed);
    pp_table_free(&table);
    must(pp_db_close(db));
    return status;
}

static void test_impossible_values_are_refused(void **state)
{
    static const char edges[] = "edges that no ppkit writes", events[] = "events that no ppkit writes";
    static const struct {
        const char *change, *message;
    } cases[] = {
        {"UPDATE task SET dep0 = id WHERE id = 5", edges},
        {"UPDATE task SET dep0 = id + 1 WHERE id = 5", edges},
        {"UPDATE task SET dep0 = -1 WHERE dep0 IS NOT NULL AND id = 9", edges},
        {"UPDATE task SET dep1 = -7 WHERE dep1 IS NOT NULL", edges},
        {"UPDATE task SET dep1 = 1 << 40 WHERE dep1 IS NOT NULL", edges},
        {"UPDATE task SET dep2 = 1 << 32 WHERE dep2 IS NOT NULL", edges},
        {"UPDATE task SET dep2 = tasks FROM plan WHERE dep2 IS NOT NULL", edges},
        {"UPDATE task SET dep0 = NULL", edges},
        {"UPDATE task SET dep_range = 1 WHERE id = 5", edges},
        {"UPDATE task SET dep_range = 1, dep0 = 0, dep1 = 1 << 40", edges},
        {"UPDATE task SET dep_range = 0 WHERE dep_range", edges},
        {"UPDATE task SET dep0 = dep0 - 1 WHERE dep_range", edges},
        {"UPDATE task SET dep1 = id WHERE dep_range", edges},
        {"UPDATE task SET dep1 = 1 << 40 WHERE dep_range", edges},
        {"UPDATE task SET computes = 0 WHERE kind = 'F'", edges}, /* what such a task waits for has no name */
        {"UPDATE wrap SET plan = 99", edges},
        {"UPDATE wrap SET needs = 1000000 WHERE needs = (SELECT max(needs) FROM wrap)", edges},
        {"UPDATE wrap SET task = -1 WHERE task = (SELECT max(task) FROM wrap)", edges},
        {"DELETE FROM wrap", edges},
        {"UPDATE plan SET edges = -1", edges},
        {"UPDATE plan SET edges = edges + 1", edges},
        {"UPDATE plan SET edges = 1 << 40", edges},
        {"UPDATE plan SET edges = 'many'", edges},
        {"UPDATE plan SET tasks = tasks + 1", events},
        {"DELETE FROM task WHERE id = 3", events},
        {"UPDATE task SET stage = 99 WHERE id = 3", events},
        {"UPDATE plan SET edges = NULL", "was stored by an older ppkit"},
        {"UPDATE plan SET edges = NULL", "run ppsim with the same options and --db test.db"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make_file();
        must(why(NULL));
        script(cases[i].change);
        const pp_status status = why(NULL);
        if (status != PP_INPUT || !strstr(pp_message(), cases[i].message))
            fail_msg("%s: status %d, message: %s", cases[i].change, (int)status, pp_message());
    }
}

/* Configurations of an older ppkit do not keep the others from being printed. */
static void test_older_rows_are_left_out(void **state)
{
    static const struct synthetic_case other = {"gpipe", 2, 1, 4, 1, PP_CHECKPOINT_NEVER, 0.02};
    char *both, *one;
    (void)state;
    make_file();
    struct pp_db *db = open_db(PP_DB_WRITE);
    synthetic_run(db, &other, true, NULL);
    synthetic_run(db, &other, false, NULL);
    must(pp_db_close(db));
    must(why(&both));
    assert_non_null(strstr(both, "small, interleaved"));
    assert_non_null(strstr(both, "small, gpipe"));
    script("UPDATE plan SET edges = NULL WHERE id = 1");
    must(why(&one));
    assert_null(strstr(one, "small, interleaved"));
    assert_non_null(strstr(one, "small, gpipe"));
    free(both);
    free(one);
    script("UPDATE plan SET edges = NULL");
    assert_int_equal(why(NULL), PP_INPUT);
    assert_non_null(strstr(pp_message(), "older ppkit"));
}

/* Odd, but there is a path. */
static void test_odd_values_have_a_path(void **state)
{
    static const char *const changes[] = {
        "DELETE FROM event WHERE task < 3",
        "DELETE FROM event WHERE task % 2",
        "UPDATE event SET end_ns = start_ns",
        /* a task of all ranks where one of one rank was */
        "UPDATE task SET dep0 = (SELECT min(id) FROM task WHERE kind = 'NORM_ALL') WHERE kind = 'STEP' AND stage = 0",
        "UPDATE task SET kind = 'GATHER_PARAM' WHERE kind = 'STEP' AND stage > 0",
        "UPDATE task SET kind = 'NORM_ALL', src = -1, dst = -1 WHERE kind = 'REDUCE_GRAD'",
    };
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        make_file();
        script(changes[i]);
        if (why(NULL) != PP_OK) fail_msg("%s: %s", changes[i], pp_message());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_impossible_values_are_refused),
        cmocka_unit_test(test_older_rows_are_left_out),
        cmocka_unit_test(test_odd_values_have_a_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
