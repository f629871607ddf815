/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of workers whose keys and values go around in a ring, followed by symbols, for all workers in step: each
 * chunk of queries meets each chunk of keys that it sees once, masked where it is the same one; gradients of keys come
 * home with what all queries have for them; and while something is sent nobody touches where it arrives, or writes
 * where it is sent from.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/shape/heads.h"
#include "core/shape/pieces.h"
#include "kernels/kernels.h"
#include "kernels/model.h"
#include "tests/unit/call_overlap.h"

enum { MOST = 5 /* workers */, ROWS = 2, CHUNK = 3 /* tokens */, CELLS = 64 };

/* What the memory of a chunk's tokens holds: of which row and chunk it is, counted over all workers, and of which
 * chunks something was added up in it. */
struct cell {
    int region;
    int64_t offset, bytes;
    int row, chunk;
    unsigned of;
};

/* A shift that nobody has waited for. */
struct pending {
    const struct pp_call *call;
    bool beside; /* a kernel was called meanwhile */
};

struct worker {
    struct cell cells[CELLS];
    int ncells;
};

struct walk {
    const struct pp_model *model;
    const struct pp_program *program;
    bool causal;
    int context;
    struct worker workers[MOST], before[MOST]; /* before: as a shift finds it */
    struct pending pending[3];                 /* by number */
    int shifts, hidden, pairs;
};

static int chunk_of(const struct walk *w, int worker, int half) { return half ? 2 * w->context - 1 - worker : worker; }
static int element(const struct walk *w) { return pp_element_bytes(w->model->local.precision); }
static int64_t keys_bytes(const struct walk *w) { return CHUNK * pp_keys_width(&w->model->local) * element(w); }

static int64_t place(const struct pp_ref *ref, int worker)
{
    return ref->offset + (worker < ref->ring_step ? ref->step_bytes : 0);
}

/* No two cells overlap. */
static struct cell *cell_at(struct worker *worker, int region, int64_t offset, int64_t bytes)
{
    for (int i = 0; i < worker->ncells; i++) {
        struct cell *cell = &worker->cells[i];
        if (cell->region != region || cell->offset >= offset + bytes || offset >= cell->offset + cell->bytes) continue;
        assert_int_equal(cell->offset, offset);
        return cell;
    }
    assert_true(worker->ncells < CELLS);
    struct cell *cell = &worker->cells[worker->ncells++];
    *cell = (struct cell){.region = region, .offset = offset, .bytes = bytes, .row = -1};
    return cell;
}

/* That of operand i. */
static struct cell *cell_of(struct walk *w, int worker, const struct pp_call *call, size_t i)
{
    const struct pp_operand operand = pp_call_operand(call, (int)i);
    return cell_at(&w->workers[worker], call->ref[i].region, place(&call->ref[i], worker),
                   operand.elements * operand.element_bytes);
}

/* The same, to which something was written before. */
static struct cell *written(struct walk *w, int worker, const struct pp_call *call, size_t i)
{
    struct cell *cell = cell_of(w, worker, call, i);
    assert_true(cell->row >= 0);
    return cell;
}

static unsigned bit(int chunk) { return 1U << chunk; }

/* The chunks of keys that this one's queries see; of queries, that see this one's keys. */
static unsigned seen_by(const struct walk *w, int chunk)
{
    return w->causal ? bit(chunk + 1) - 1 : bit(2 * w->context) - 1;
}
static unsigned seeing(const struct walk *w, int chunk)
{
    return (bit(2 * w->context) - 1) & ~(w->causal ? bit(chunk) - 1 : 0);
}

/* Names the worker's own chunks from an operand on, `bytes` apart. */
static void name_chunks(struct walk *w, int worker, const struct pp_ref *ref, int64_t bytes)
{
    for (int i = 0; i < 2 * ROWS; i++) {
        struct cell *cell = cell_at(&w->workers[worker], ref->region, ref->offset + i * bytes, bytes);
        cell->row = i / 2;
        cell->chunk = chunk_of(w, worker, i % 2);
        cell->of = 0;
    }
}

static void copy_keys(struct walk *w, int worker, const struct pp_call *call)
{
    name_chunks(w, worker, &call->at.copy_keys.qkv, CHUNK * pp_qkv_width(&w->model->local) * element(w));
    name_chunks(w, worker, &call->at.copy_keys.to, keys_bytes(w));
}

/* Queries and keys of one row, masked as they are to be. */
static void check_pair(const struct walk *w, const struct pp_call *call, const struct cell *queries,
                       const struct cell *keys)
{
    const struct pp_attention_dims *n = &call->attention;
    assert_int_equal(queries->row, keys->row);
    assert_true(n->rows == 1 && n->seq == CHUNK && n->keys == CHUNK && n->window == 0 && call->site == 0);
    assert_int_equal(n->causal, w->causal && queries->chunk == keys->chunk);
    assert_true(seen_by(w, queries->chunk) & bit(keys->chunk));
}

static void flash(struct walk *w, int worker, const struct pp_call *call)
{
    const struct cell queries = *written(w, worker, call, PP_OPERAND(flash, qkv)),
                      keys = *written(w, worker, call, PP_OPERAND(flash, keys));
    check_pair(w, call, &queries, &keys);
    struct cell *made[] = {cell_of(w, worker, call, PP_OPERAND(flash, ctx)),
                           cell_of(w, worker, call, PP_OPERAND(flash, lse))};
    for (int i = 0; i < 2; i++) {
        made[i]->row = queries.row;
        made[i]->chunk = queries.chunk;
        made[i]->of = bit(keys.chunk);
    }
    w->pairs++;
}

/* to += from: of the same chunk, and of chunks that are not in it yet. */
static void add(struct cell *to, const struct cell *from)
{
    assert_true(to->row == from->row && to->chunk == from->chunk && !(to->of & from->of));
    to->of |= from->of;
}

static void merge(struct walk *w, int worker, const struct pp_call *call)
{
    assert_int_equal(call->merge.tokens, CHUNK);
    add(written(w, worker, call, PP_OPERAND(merge, ctx)), written(w, worker, call, PP_OPERAND(merge, part)));
    add(written(w, worker, call, PP_OPERAND(merge, lse)), written(w, worker, call, PP_OPERAND(merge, part_lse)));
}

static void flash_grad(struct walk *w, int worker, const struct pp_call *call)
{
    const size_t same[] = {PP_OPERAND(flash_grad, ctx), PP_OPERAND(flash_grad, lse), PP_OPERAND(flash_grad, dctx)};
    struct cell *queries = written(w, worker, call, PP_OPERAND(flash_grad, qkv));
    const struct cell keys = *written(w, worker, call, PP_OPERAND(flash_grad, keys));
    check_pair(w, call, queries, &keys);
    for (int i = 0; i < 3; i++) {
        const struct cell *cell = written(w, worker, call, same[i]);
        assert_true(cell->row == queries->row && cell->chunk == queries->chunk);
    }
    assert_int_equal(queries->of, 0); /* not yet a gradient */
    queries->of = bit(keys.chunk);
    struct cell *dkeys = cell_of(w, worker, call, PP_OPERAND(flash_grad, dkeys));
    dkeys->row = keys.row;
    dkeys->chunk = keys.chunk;
    dkeys->of = bit(queries->chunk);
    w->pairs++;
}

/* All chunks of what was added up are there. */
static void check_sums(struct walk *w, int worker, const struct pp_call *call)
{
    const struct pp_columns_dims *n = &call->columns;
    const bool keys = n->width == pp_keys_width(&w->model->local);
    for (int i = 0; i < 2 * ROWS; i++) {
        const struct pp_ref *at = &call->at.add_columns.from;
        const int64_t bytes = (int64_t)CHUNK * n->from_pitch * element(w);
        const struct cell *cell = cell_at(&w->workers[worker], at->region, at->offset + i * bytes, bytes);
        const int chunk = chunk_of(w, worker, i % 2);
        assert_true(cell->row == i / 2 && cell->chunk == chunk);
        assert_int_equal(cell->of, keys ? seeing(w, chunk) : seen_by(w, chunk));
    }
    assert_false(n->adds);
}

static void add_columns(struct walk *w, int worker, const struct pp_call *call)
{
    if (call->columns.rows != CHUNK) {
        assert_int_equal(call->columns.rows, 2 * ROWS * CHUNK);
        check_sums(w, worker, call);
        return;
    }
    const struct cell from = *written(w, worker, call, PP_OPERAND(add_columns, from));
    struct cell *to = cell_of(w, worker, call, PP_OPERAND(add_columns, to));
    if (call->columns.adds) {
        add(to, &from);
        return;
    }
    to->row = from.row;
    to->chunk = from.chunk;
    to->of = from.of;
}

static void shift(struct walk *w, int worker, const struct pp_call *call)
{
    const int sender = (worker + w->context - 1) % w->context;
    for (int i = 0; i < 2 * ROWS; i++) {
        const struct pp_ref *to = &call->at.exchange.to, *from = &call->at.exchange.from;
        const int64_t bytes = keys_bytes(w), at = i * bytes;
        const struct cell sent = *cell_at(&w->before[sender], from->region, from->offset + at, bytes);
        struct cell *came = cell_at(&w->workers[worker], to->region, to->offset + at, bytes);
        assert_true(sent.row >= 0);
        came->row = sent.row;
        came->chunk = sent.chunk;
        came->of = sent.of;
    }
}

static void check_apart(const struct walk *w, const struct pp_call *call)
{
    const int to = PP_OPERAND(exchange, to), from = PP_OPERAND(exchange, from);
    for (size_t k = 0; k < sizeof w->pending / sizeof *w->pending; k++)
        for (int i = 0; i < PP_CALL_REFS && w->pending[k].call; i++) {
            const bool writes = pp_call_operand(call, i).use & PP_USE_WRITE;
            assert_false(overlap(call, i, w->pending[k].call, to));
            assert_false(writes && overlap(call, i, w->pending[k].call, from));
        }
}

/* Numbers begin with 1, and those with lower ones have been awaited before. */
static void keep_time(struct walk *w, const struct pp_call *call)
{
    const struct pp_join_work join = pp_call_join(call);
    const int most = pp_shape_most_beside(&w->model->shape);
    check_apart(w, call);
    if (join.op == PP_JOIN_AWAIT) {
        assert_in_range(join.beside, 1, most);
        assert_non_null(w->pending[join.beside].call);
        assert_true(join.beside == 1 || !w->pending[1].call);
        w->hidden += w->pending[join.beside].beside;
        w->pending[join.beside] = (struct pending){0};
    } else if (join.op != PP_JOIN_NONE) {
        assert_in_range(join.beside, 1, most);
        assert_null(w->pending[join.beside].call);
        assert_true(join.beside == 2 || !w->pending[2].call);
        w->pending[join.beside] = (struct pending){.call = call};
        w->shifts++;
    }
    for (int k = 1; k <= most && join.op == PP_JOIN_NONE; k++) w->pending[k].beside = true;
}

static void pass(struct walk *w, const struct pp_call *call)
{
    void (*const follow[PP_KERNELS])(struct walk * w, int worker, const struct pp_call *call) = {
        [PP_KERNEL_COPY_KEYS] = copy_keys,   [PP_KERNEL_FLASH] = flash, [PP_KERNEL_MERGE] = merge,
        [PP_KERNEL_FLASH_GRAD] = flash_grad, [PP_KERNEL_SHIFT] = shift, [PP_KERNEL_ADD_COLUMNS] = add_columns};
    keep_time(w, call);
    memcpy(w->before, w->workers, sizeof w->before);
    for (int worker = 0; worker < w->context && follow[call->kernel]; worker++) follow[call->kernel](w, worker, call);
}

/* The gradient at what attention made, as the calls before have left it. */
static void name_gradients(struct walk *w)
{
    for (int i = 0; i < w->program->ncalls; i++) {
        const struct pp_call *call = &w->program->calls[i];
        if (call->kernel != PP_KERNEL_FLASH_GRAD) continue;
        for (int worker = 0; worker < w->context; worker++) /* the first call is of the first chunks */
            name_chunks(w, worker, &call->at.flash_grad.dctx,
                        CHUNK * pp_attended_width(&w->model->local) * (int64_t)element(w));
        return;
    }
}

/* Scratch does not outlive a task; activations are not there if a backward makes them again, in other places. */
static void forget(struct walk *w, bool activations)
{
    for (int worker = 0; worker < w->context; worker++) {
        struct worker *of = &w->workers[worker];
        int kept = 0;
        for (int i = 0; i < of->ncells; i++)
            if (of->cells[i].region != PP_MEM_WORK && !activations) of->cells[kept++] = of->cells[i];
        of->ncells = kept;
    }
}

/* again: B makes the layer again before. */
static void run(struct walk *w, const struct pp_model *model, int kind, bool again)
{
    const struct pp_program_spec spec = {2 * w->context * CHUNK, ROWS, true, false, again};
    const struct pp_class cls = {kind, 0, ROWS, 0, 1};
    struct pp_program program;
    if (pp_model_program(model, &cls, &spec, &program) != PP_OK) fail_msg("%s", pp_message());
    w->program = &program;
    w->shifts = w->hidden = w->pairs = 0;
    forget(w, again);
    if (kind == PP_B) name_gradients(w);
    for (int i = 0; i < program.ncalls; i++) pass(w, &program.calls[i]);
    for (size_t k = 0; k < sizeof w->pending / sizeof *w->pending; k++) assert_null(w->pending[k].call);
    pp_program_free(&program);
}

/* What the forward leaves of the worker's own chunks: the sums of all that their queries see. */
static void check_forward(struct walk *w)
{
    int chunks = 0;
    for (int worker = 0; worker < w->context; worker++)
        for (int i = 0; i < w->workers[worker].ncells; i++) {
            const struct cell *cell = &w->workers[worker].cells[i];
            if (cell->region != PP_MEM_ACT || !cell->of) continue;
            assert_int_equal(cell->of, seen_by(w, cell->chunk));
            chunks++;
        }
    assert_int_equal(chunks, 2 * 2 * ROWS * w->context); /* ctx and lse of each */
}

static int pairs_of(const struct walk *w)
{
    const int chunks = 2 * w->context;
    return ROWS * (w->causal ? chunks * (chunks + 1) / 2 : chunks * chunks);
}

static void check_ring(struct pp_shape *shape)
{
    struct pp_model *model;
    struct walk w = {.causal = shape->mask == PP_MASK_CAUSAL, .context = shape->context};
    if (pp_model_create(shape, 1, NULL, NULL, &model) != PP_OK) fail_msg("%s", pp_message());
    w.model = model;
    run(&w, model, PP_F, false);
    assert_int_equal(w.pairs, pairs_of(&w));
    assert_true(w.shifts == w.context - 1 && w.hidden == w.shifts);
    check_forward(&w);
    for (int again = 0; again < 2; again++) {
        run(&w, model, PP_B, again);
        assert_int_equal(w.pairs, pairs_of(&w) * (1 + again));
        assert_int_equal(w.shifts, 2 * w.context - 1 + again * (w.context - 1));
        assert_int_equal(w.hidden, w.shifts - 1); /* all but the last gradients */
    }
    pp_model_free(model);
}

static void test_ring(void **state)
{
    (void)state;
    struct pp_shape shape = {.d_model = 16, .heads = 4, .d_ff = 32, .layers = 1, .vocab = 30, .kv_heads = 1};
    shape.attention = PP_ATTENTION_FLASH;
    shape.context_kind = PP_CONTEXT_RING;
    for (int way = 0; way < 16; way++)
        for (shape.context = 2; shape.context <= MOST; shape.context++) {
            shape.mask = way % 2 ? PP_MASK_CAUSAL : PP_MASK_NONE;
            shape.precision = way / 2 % 2 ? PP_BF16 : PP_FP32;
            shape.positions = way / 4 % 2 ? PP_POSITIONS_ROPE : PP_POSITIONS_SINUSOIDAL;
            shape.rope_theta = 10000;
            shape.bias = way / 8 % 2 ? PP_NO_BIAS : PP_BIAS;
            check_ring(&shape);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ring)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
