/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and fills. Pageable memory of the host works as CUDA says, but not beside other work; under PP_EMULATE_STRICT
 * it is reported.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "emulator.h"

struct copy {
    struct pp_emu_op op;
    void *to;
    const void *from; /* NULL: fill */
    int value;
    size_t bytes;
    size_t to_pitch, from_pitch, more; /* as many bytes again, so far behind; so many times */
    char staged[];                     /* what pageable memory held at the call */
};

static void run_copy(struct pp_emu_op *op, cudaStream_t stream, bool dead)
{
    struct copy *c = (struct copy *)op;
    (void)stream;
    for (size_t i = 0; !dead && c->from && i <= c->more; i++)
        memcpy((char *)c->to + i * c->to_pitch, (const char *)c->from + i * c->from_pitch, c->bytes);
    if (!dead && !c->from) memset(c->to, c->value, c->bytes);
    free(c);
}

static bool kind_fits(enum cudaMemcpyKind kind, bool to_device, bool from_device)
{
    static const struct {
        bool to, from;
    } sides[] = {[cudaMemcpyHostToHost] = {false, false},
                 [cudaMemcpyHostToDevice] = {true, false},
                 [cudaMemcpyDeviceToHost] = {false, true},
                 [cudaMemcpyDeviceToDevice] = {true, true}};
    if (kind == cudaMemcpyDefault) return true;
    return (unsigned)kind < 4 && sides[kind].to == to_device && sides[kind].from == from_device;
}

/* What the two sides are. */
static bool find_sides(const char *function, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                       struct pp_emu_range *target, struct pp_emu_range *source)
{
    if (to && from && pp_emu_find(to, bytes, target) && pp_emu_find(from, bytes, source) &&
        kind_fits(kind, target->kind == PP_EMU_DEVICE, source->kind == PP_EMU_DEVICE))
        return true;
    pp_emu_complain("%s: %zu bytes from %p to %p leave an allocation or are not what kind %d says", function, bytes,
                    from, to, kind);
    return false;
}

static struct copy *make_copy(void *to, const void *from, size_t bytes, bool stage)
{
    struct copy *c = malloc(sizeof(*c) + (stage ? bytes : 0));
    if (!c) return NULL;
    *c = (struct copy){.op.run = run_copy, .to = to, .from = stage ? c->staged : from, .bytes = bytes};
    if (stage) memcpy(c->staged, from, bytes);
    return c;
}

static cudaError_t copy(const char *function, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                        cudaStream_t handle, bool blocks)
{
    struct pp_emu_range target, source;
    cudaStream_t stream = pp_emu_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (!bytes) return cudaSuccess;
    if (!find_sides(function, to, from, bytes, kind, &target, &source)) return cudaErrorInvalidValue;
    const bool to_pageable = target.kind == PP_EMU_PAGEABLE, from_pageable = source.kind == PP_EMU_PAGEABLE;
    if ((to_pageable || from_pageable) && !blocks && pp_emu_settings()->strict)
        pp_emu_complain("%s: the %s is pageable memory of the host", function, to_pageable ? "target" : "source");
    struct copy *c = make_copy(to, from, bytes, from_pageable);
    if (!c) return cudaErrorMemoryAllocation;
    pp_emu_count(PP_EMU_COPIES, 1);
    pp_emu_enqueue(stream, &c->op);
    if (blocks || to_pageable) pp_emu_drain(stream);
    return pp_emu_fault(stream->device);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    PP_EMU_ENTER();
    return pp_emu_error(copy(__func__, to, from, bytes, kind, stream, false));
}

/* Of memory of devices alone. */
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes, size_t rows,
                              enum cudaMemcpyKind kind, cudaStream_t handle)
{
    PP_EMU_ENTER();
    cudaStream_t stream = pp_emu_stream(handle);
    if (!stream) return pp_emu_error(cudaErrorInvalidResourceHandle);
    if (to_pitch < bytes || from_pitch < bytes || to_pitch > INT32_MAX || from_pitch > INT32_MAX)
        return pp_emu_error(cudaErrorInvalidPitchValue);
    if (!bytes || !rows) return cudaSuccess;
    if (!pp_emu_is_device(__func__, "the target", to, (rows - 1) * to_pitch + bytes) ||
        !pp_emu_is_device(__func__, "the source", from, (rows - 1) * from_pitch + bytes) ||
        !kind_fits(kind, true, true))
        return pp_emu_error(cudaErrorInvalidValue);
    struct copy *c = make_copy(to, from, bytes, false);
    if (!c) return pp_emu_error(cudaErrorMemoryAllocation);
    c->to_pitch = to_pitch;
    c->from_pitch = from_pitch;
    c->more = rows - 1;
    pp_emu_count(PP_EMU_COPIES, 1);
    pp_emu_enqueue(stream, &c->op);
    return pp_emu_error(pp_emu_fault(stream->device));
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    PP_EMU_ENTER();
    return pp_emu_error(copy(__func__, to, from, bytes, kind, NULL, true));
}

static cudaError_t fill(const char *function, void *to, int value, size_t bytes, cudaStream_t handle)
{
    cudaStream_t stream = pp_emu_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (!bytes) return cudaSuccess;
    if (!pp_emu_is_device(function, "the target", to, bytes)) return cudaErrorInvalidValue;
    struct copy *c = malloc(sizeof(*c));
    if (!c) return cudaErrorMemoryAllocation;
    *c = (struct copy){.op.run = run_copy, .to = to, .value = value, .bytes = bytes};
    pp_emu_count(PP_EMU_FILLS, 1);
    pp_emu_enqueue(stream, &c->op);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    PP_EMU_ENTER();
    return pp_emu_error(fill(__func__, to, value, bytes, stream));
}

/* Returns before the memory is written, as the real one. */
cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    PP_EMU_ENTER();
    return pp_emu_error(fill(__func__, to, value, bytes, NULL));
}
