/* SPDX-License-Identifier: Apache-2.0
 *
 * Which options decide the names and shapes of a model's tensors: those of trait PP_OPT_TENSORS, and no other.
 */
#include <stdlib.h>

#include "kernels/model.h"
#include "tests/unit/config_case.h"

enum { LINE = 400 };

/* Models in which every option counts that describes one. */
#define SIZES "--d-model 16 --heads 4 --d-ff 32 --layers 4 --vocab 50 --rows 2 --tokens 8 "
static const char *const bases[] = {
    SIZES,
    SIZES "--positions learned --max-positions 8 --head-dim 8 --kv-heads 2 --qk-norm yes --activation swiglu",
    SIZES "--experts 4 --bias no --shared-ff 8 --dense-layers 1 --dense-ff 16",
    SIZES "--experts 4 --bias no --experts-every 2 --expert-groups 2",
    SIZES "--positions rope --bias no --kv-lora-rank 8 --q-lora-rank 8 --qk-nope-head-dim 4 --qk-rope-head-dim 4 "
          "--v-head-dim 4",
};
enum { BASES = sizeof bases / sizeof *bases };

/* NULL: the options are refused. */
static struct pp_model *model_of(const char *line)
{
    struct pp_config config;
    struct pp_shape shape;
    struct pp_model *model;
    if (parse(PP_PPSIM, line, &config) != PP_OK) return NULL;
    pp_config_shape(&config, &shape);
    return pp_model_create(&shape, 1, "uniform", NULL, &model) == PP_OK ? model : NULL;
}

static bool same_tensors(const struct pp_model *a, const struct pp_model *b)
{
    if (a->ntensors != b->ntensors) return false;
    for (int i = 0; i < a->ntensors; i++) {
        const struct pp_tensor *x = &a->tensors[i], *y = &b->tensors[i];
        if (strcmp(x->name, y->name) != 0 || !x->copy != !y->copy || x->ndim != y->ndim ||
            memcmp(x->shape, y->shape, sizeof x->shape) != 0)
            return false;
    }
    return true;
}

/* Does the option, with this value, change the tensors of some model? */
static bool changes(const struct pp_opt *row, const char *value, int length)
{
    bool any = false;
    for (int b = 0; b < BASES; b++) {
        char line[LINE];
        snprintf(line, sizeof line, "%s --%s %.*s", bases[b], row->name, length, value);
        struct pp_model *base = model_of(bases[b]), *other = model_of(line);
        if (!base) fail_msg("%s: %s", bases[b], pp_message());
        any = any || (other && !same_tensors(base, other));
        pp_model_free(base);
        pp_model_free(other);
    }
    return any;
}

/* With some value of a list a|b|c. */
static bool any_changes(const struct pp_opt *row, const char *values)
{
    for (const char *value = values; *value; value += *value == '|') {
        const int length = (int)strcspn(value, "|");
        if (changes(row, value, length)) return true;
        value += length;
    }
    return false;
}

static void test_traits(void **state)
{
    (void)state;
    int decide = 0;
    for (int i = 0; i < pp_config_nrows; i++) {
        const struct pp_opt *row = &pp_config_rows[i];
        const bool said = row->traits & PP_OPT_TENSORS, chosen = row->type == PP_OPT_CHOICE;
        if (!said && strncmp(row->group, "Model", 5) != 0) continue;
        const bool does = any_changes(row, chosen ? row->choices : "0|1|2|3|4|8|12|64");
        if (does != said) fail_msg("--%s: %s", row->name, does ? "decides tensors" : "decides no tensors");
        decide += does;
    }
    assert_true(decide > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_traits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
