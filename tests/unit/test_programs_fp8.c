/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of precision fp8 beside those of bf16, of random models. Without the calls that round factors, and with the
 * plain product in the place of each FP8 product, they are the same programs. Memory is followed by symbols
 * (program_contents.h): each FP8 product must read both factors as they are at that call, rounded to the right format
 * and turned the right way, and the scales that belong to them. Copies of weights that a worker keeps are written by
 * programs of the class that rounds weights, all of them, and by no others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/shape/pieces.h"
#include "tests/unit/program_fp8.h"
#include "tests/unit/program_ways.h"
#include "tests/unit/random_shape.h"

enum { MODELS = 1200 };

/* ---- products ---- */

static bool is_within(int64_t offset, int64_t begin, int64_t bytes)
{
    return begin >= 0 && offset >= begin && offset < begin + bytes;
}

/* The tensor that a product of the bf16 program multiplies by, or makes the gradient of, or of some of its experts. */
static const struct pp_tensor *tensor_of(const struct pair *p, const struct pp_call *plain)
{
    const bool back = plain->kernel == PP_KERNEL_GEMM_TN;
    const struct pp_ref *ref = back ? &plain->at.gemm.c : &plain->at.gemm.b;
    const struct pp_tensor *first = &p->model->tensors[p->stage->first_tensor];
    if (ref->region != (back ? PP_MEM_GRAD : PP_MEM_PARAM16)) return NULL;
    for (const struct pp_tensor *t = first; t < first + p->stage->tensors; t++)
        if (t->ndim == 2 && is_within(ref->offset, back ? t->offset : t->offset16, t->local_elements * (back ? 4 : 2)))
            return t;
    return NULL;
}

/* Of attention, of feed-forwards, and beside experts; not the router, the gate, or the decoder. */
static bool is_of_linear(const struct pp_tensor *t)
{
    return !strncmp(t->name, "layers.", 7) && !strstr(t->name, ".router.") && !strstr(t->name, ".gate.");
}

static bool should_be_fp8(const struct pair *p, const struct pp_call *plain)
{
    const bool product =
        plain->kernel == PP_KERNEL_GEMM_NT || plain->kernel == PP_KERNEL_GEMM_NN || plain->kernel == PP_KERNEL_GEMM_TN;
    if (!product) return false;
    const struct pp_tensor *t = tensor_of(p, plain);
    require(p, t);
    const struct pp_gemm_dims *n = &plain->gemm;
    const bool fits = n->m % 16 == 0 && n->n % 16 == 0 && n->k % 16 == 0;
    if (is_of_linear(t) && !fits) met.small++;
    return is_of_linear(t) && fits;
}

static bool same_ref(const struct pp_ref *a, const struct pp_ref *b)
{
    return a->region == b->region && a->offset == b->offset && a->row_bytes == b->row_bytes &&
           a->part_bytes == b->part_bytes && a->expert_bytes == b->expert_bytes;
}

/* The factor of the plain product as it is in memory now. */
static struct factor factor_now(const struct pair *p, const struct pp_call *plain, int i, bool turned)
{
    const struct pp_gemm_dims *n = &plain->gemm;
    const int rows = i == PP_OPERAND(gemm, a) ? n->m : n->n;
    return (struct factor){.content = content_of(&p->rounded, plain, i, p->who),
                           .rows = turned ? n->k : rows,
                           .width = turned ? rows : n->k,
                           .times = PP_TIMES(n),
                           .turned = turned};
}

/* What copies of a tensor hold at a place, if all of it was rounded at once. */
static uint64_t content_of_copy(const struct pair *p, const struct pp_tensor *t, bool turned, int64_t offset,
                                int64_t bytes)
{
    struct contents copy = {0};
    struct factor f = factor_of_tensor(p, t);
    f.turned = turned;
    write_content(&copy, PP_MEM_PARAM16, places_of(t).numbers[turned], t->local_elements, made_of(&f, NUMBERS));
    const uint64_t content = read_content(&copy, PP_MEM_PARAM16, offset, bytes);
    free_contents(&copy);
    return content;
}

/* The product reads the copy of the weight that the plain product reads, or of some of its experts. */
static void check_copy(struct pair *p, const struct pp_tensor *t, const struct pp_call *plain, bool turned)
{
    const int b = PP_OPERAND(gemm_fp8, b), scale = PP_OPERAND(gemm_fp8, scale_b);
    const struct factor whole = factor_of_tensor(p, t);
    const int64_t numbers = (plain->at.gemm.b.offset - t->offset16) / 2; /* before these */
    require(p, p->call->ref[b].offset == places_of(t).numbers[turned] + numbers);
    require(p, content_of(&p->rounded, p->call, b, p->who) ==
                   content_of_copy(p, t, turned, p->call->ref[b].offset, bytes_of(p->call, b)));
    require(p, p->call->ref[scale].offset == places_of(t).scale);
    require(p, content_of(&p->rounded, p->call, scale, p->who) == made_of(&whole, SCALE));
    met.parts += plain->gemm.times != whole.times && t->of_experts && whole.times > 1;
    p->copied++;
}

static void check_factor(struct pair *p, const struct factor *expected, int numbers, int scale)
{
    check_scratch(p, numbers);
    check_scratch(p, scale);
    require(p, content_of(&p->rounded, p->call, numbers, p->who) == made_of(expected, NUMBERS));
    require(p, content_of(&p->rounded, p->call, scale, p->who) == made_of(expected, SCALE));
    for (int i = 0; i < p->noutputs; i++) p->outputs[i].read |= p->outputs[i].offset == p->call->ref[numbers].offset;
}

static void check_product(struct pair *p, const struct pp_call *plain)
{
    const struct pp_gemm_dims *n = &p->call->gemm, *m = &plain->gemm;
    const bool back = plain->kernel != PP_KERNEL_GEMM_NT, of_weight = plain->kernel == PP_KERNEL_GEMM_TN;
    struct factor a = factor_now(p, plain, PP_OPERAND(gemm, a), of_weight);
    const struct factor b = factor_now(p, plain, PP_OPERAND(gemm, b), back);
    a.gradient = back;
    require(p, n->m == m->m && n->n == m->n && n->k == m->k && n->mode == m->mode && n->wide == m->wide &&
                   n->times == m->times && n->gradient == back);
    require(p, p->call->precision == PP_BF16 && same_ref(&p->call->at.gemm_fp8.c, &plain->at.gemm.c));
    check_factor(p, &a, PP_OPERAND(gemm_fp8, a), PP_OPERAND(gemm_fp8, scale_a));
    const struct pp_tensor *copied = copied_at(p, &p->call->at.gemm_fp8.b);
    if (copied)
        check_copy(p, copied, plain, b.turned);
    else
        check_factor(p, &b, PP_OPERAND(gemm_fp8, b), PP_OPERAND(gemm_fp8, scale_b));
    met.products++;
    p->weights += of_weight;
    met.gathered += !of_weight && p->model->shape.zero == PP_ZERO_PARAMETERS;
    met.of_experts += m->times > 1;
}

/* Any other call is that of the bf16 program, and leaves the scratch of FP8 alone. */
static void check_same(struct pair *p, const struct pp_call *plain)
{
    require(p, p->call->kernel == plain->kernel && p->call->precision == plain->precision);
    for (int i = 0; i < PP_CALL_REFS; i++) {
        const struct pp_ref *ref = &p->call->ref[i];
        require(p, same_ref(ref, &plain->ref[i]));
        if (ref->region == PP_MEM_WORK && pp_call_operand(p->call, i).name)
            require(p, place_of(ref, p->who) + bytes_of(p->call, i) <= p->bf16->work_bytes);
    }
}

/* Both programs compute the same. */
static void check_call(struct pair *p, const struct pp_call *plain)
{
    if (should_be_fp8(p, plain)) {
        require(p, p->call->kernel == PP_KERNEL_GEMM_FP8);
        check_product(p, plain);
    } else {
        check_same(p, plain);
    }
    const uint64_t computed = computation_of(&p->plain, plain, p->who);
    require(p, computed == computation_of(&p->rounded, plain, p->who));
    compute(&p->plain, plain, p->who, computed);
    compute(&p->rounded, plain, p->who, computed);
}

static void check_calls(struct pair *p)
{
    int next = 0;
    for (int i = 0; i < p->fp8->ncalls; i++) {
        p->call = &p->fp8->calls[i];
        if (p->call->kernel == PP_KERNEL_AMAX) {
            amax(p);
        } else if (p->call->kernel == PP_KERNEL_TO_FP8) {
            to_fp8(p);
        } else {
            require(p, next < p->bf16->ncalls);
            check_call(p, &p->bf16->calls[next++]);
        }
    }
    assert_int_equal(next, p->bf16->ncalls);
    for (int i = 0; i < p->noutputs; i++) require(p, p->outputs[i].read);
}

/* Where products are not cut into pieces, a full backward rounds each gradient once, both ways, and nothing else is
 * spared but copies of weights: each product reads two matrices of its own, or one of its own and a copy. */
static void check_spared(const struct pair *p, bool full_backward, int products, int roundings, int outputs)
{
    if (p->model->shape.sum_pieces > 1 || pp_exchange_pieces(&p->model->shape) > 1) return;
    assert_int_equal(met.outputs - outputs, 2 * (met.products - products) - p->copied + 2 * p->copies);
    assert_int_equal(met.outputs - outputs - (met.roundings - roundings), (full_backward ? p->weights : 0) + p->copies);
}

/* A program that rounds weights writes the copies of all that its part of the stage has; no other writes any. */
static void check_copies(const struct pair *p, const struct pp_class *cls)
{
    const struct pp_tensor_range range = pp_part_tensors(p->stage, cls);
    const struct pp_tensor *first = &p->model->tensors[p->stage->first_tensor + range.first];
    int needed = 0;
    for (int i = 0; i < range.n && cls->rounds; i++) needed += first[i].offset8 >= 0;
    if (p->copies != needed) fail_msg("%s: %d copies, not %d", p->fp8->signature, p->copies, needed);
    met.copies += p->copies;
    met.copied += p->copied;
}

/* All copies are there but in a program that rounds weights. */
static void begin_copies(struct pair *p, const struct pp_class *cls)
{
    const struct pp_tensor *first = &p->model->tensors[p->stage->first_tensor];
    for (int i = 0; i < p->stage->tensors && !cls->rounds; i++)
        if (first[i].offset8 >= 0) write_copies(p, &first[i]);
}

/* ---- models ---- */

/* The same names but for the precision, which stands in all of them, and for the word of programs that round weights.
 */
static void check_names(const struct pp_program *bf16, const struct pp_program *fp8, bool rounds)
{
    static const char word[] = " rounds";
    char name[PP_SIGNATURE_BYTES + 4], found[PP_SIGNATURE_BYTES + 4];
    const char *at = strstr(bf16->signature, " bf16"), *rounding = strstr(fp8->signature, word);
    assert_non_null(at);
    assert_true(rounds == (rounding != NULL));
    snprintf(name, sizeof name, "%.*s fp8%s", (int)(at - bf16->signature), bf16->signature, at + strlen(" bf16"));
    snprintf(found, sizeof found, "%.*s%s", (int)((rounding ? rounding : fp8->signature) - fp8->signature),
             fp8->signature, rounding ? rounding + strlen(word) : fp8->signature);
    assert_string_equal(found, name);
}

static void check_class(void *arg, const struct pp_class *cls, const struct pp_program_spec *spec, uint64_t *dice)
{
    struct pp_model *const *models = arg; /* of bf16, of fp8 */
    struct pp_program bf16, fp8;
    const struct pp_shape *shape = &models[0]->shape;
    const int products = met.products, roundings = met.roundings, outputs = met.outputs;
    if (pp_model_program(models[0], cls, spec, &bf16) != PP_OK) fail_msg("%s", pp_message());
    if (pp_model_program(models[1], cls, spec, &fp8) != PP_OK) fail_msg("%s", pp_message());
    struct pair p = {.model = models[1], .stage = &models[1]->stages[cls->stage], .bf16 = &bf16, .fp8 = &fp8};
    p.who.tensor_rank = random_below(dice, pp_shape_tensor(shape));
    p.who.expert_rank = random_below(dice, pp_shape_expert_parallel(shape));
    const bool multiplies = cls->kind == PP_F || cls->kind == PP_R || cls->kind == PP_B || cls->kind == PP_I;
    check_names(&bf16, &fp8, shape->zero == PP_ZERO_PARAMETERS ? multiplies : cls->rounds);
    begin_copies(&p, cls);
    check_calls(&p);
    check_copies(&p, cls);
    check_spared(&p, cls->kind == PP_B, products, roundings, outputs);
    if (met.products == products) assert_int_equal(fp8.work_bytes, bf16.work_bytes);
    met.programs++;
    free_contents(&p.plain);
    free_contents(&p.rounded);
    pp_program_free(&bf16);
    pp_program_free(&fp8);
}

static void test_programs(void **state)
{
    (void)state;
    uint64_t dice = 1;
    for (int i = 0; i < MODELS; i++) {
        struct pp_shape shape = random_shape(&dice);
        struct pp_model *bf16, *fp8;
        const int stages = 1 + random_below(&dice, shape.layers < 3 ? shape.layers : 3);
        if (shape.zero == PP_ZERO_PARAMETERS && shape.exchange_pieces) shape.exchange_pieces = 1; /* FP8 has no more */
        shape.precision = PP_BF16;
        if (pp_model_create(&shape, stages, NULL, NULL, &bf16) != PP_OK) continue; /* sizes that do not go together */
        shape.precision = PP_FP8;
        if (pp_model_create(&shape, stages, NULL, NULL, &fp8) != PP_OK) fail_msg("%s", pp_message());
        struct pp_model *models[] = {bf16, fp8};
        with_classes(bf16, &dice, check_class, models);
        met.models++;
        pp_model_free(bf16);
        pp_model_free(fp8);
    }
    print_message(
        "%d models, %d programs: %d FP8 products (%d of experts), %d too small; %d roundings of %d matrices\n",
        met.models, met.programs, met.products, met.of_experts, met.small, met.roundings, met.outputs);
    assert_true(met.models > MODELS / 2 && met.products > 10 * MODELS && met.of_experts > MODELS && met.small > MODELS);
    assert_true(met.roundings < met.outputs && met.copies > MODELS && met.copied > 5 * MODELS);
    assert_true(met.gathered > MODELS && met.parts > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_programs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
