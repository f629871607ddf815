/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of latent attention.
 */
#include "tests/unit/config_case.h"

/* A whole latent attention. */
#define LATENT "--bias no --positions rope --kv-lora-rank 8 --qk-nope-head-dim 4 --qk-rope-head-dim 2 --v-head-dim 4"

static void latent_attention_that_makes_no_sense_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *line, *message;
    } cases[] = {
        {LATENT " --d-model 64 --heads 4 --head-dim 16", "--head-dim 16: with --kv-lora-rank"},
        {LATENT " --d-model 64 --heads 4 --rotary-dim 16", "--rotary-dim 16: with --kv-lora-rank"},
        {"--q-lora-rank 8", "--q-lora-rank is of --kv-lora-rank; add that"},
        {"--v-head-dim 8", "--v-head-dim is of --kv-lora-rank; add that"},
        {LATENT " --kv-heads 1", "each head has a key and a value of its own"},
        {LATENT " --head-dim 8", "say how wide heads are"},
        {LATENT " --qk-norm yes", "the latent vectors are normalised instead"},
        {"--bias no --positions rope --kv-lora-rank 8", "add --qk-nope-head-dim, --qk-rope-head-dim and --v-head-dim"},
        {LATENT " --bias qkv", "add --bias no"},
        {LATENT " --positions learned", "add --positions rope"},
        {LATENT " --qk-rope-head-dim 3", "--qk-rope-head-dim 3: pairs of columns are rotated"},
        {LATENT " --v-head-dim 16777216", "wider than any model"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) refused(cases[i].line, cases[i].message);
    struct pp_config c;
    assert_int_equal(parse(PP_PPSIM, LATENT " --kv-heads 2 --heads 2", &c), PP_OK); /* as many as heads */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(latent_attention_that_makes_no_sense_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
