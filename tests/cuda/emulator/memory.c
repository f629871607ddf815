/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocations are listed, so that copies can be checked: a pointer that is in none is pageable memory of the host.
 * Fresh memory of a device is NaN.
 */
#include <stdlib.h>
#include <string.h>

#include "emulator.h"

enum {
    ALIGNMENT = 512,
    POISON = 0xff,
    GUARD = 0xa5,
    GUARD_BYTES = 512,
    POISON_BYTES =
        4 << 20 /* only the first ones of an allocation: the workspace of products has 64 MiB, in every run */
};

struct allocation {
    struct allocation *next;
    struct pp_emu_range range;
};

static struct allocation *allocations;
static uint64_t used[PP_EMU_DEVICES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

bool pp_emu_find(const void *p, size_t bytes, struct pp_emu_range *range)
{
    const char *c = p;
    *range = (struct pp_emu_range){.start = NULL, .kind = PP_EMU_PAGEABLE, .device = -1};
    pp_emu_lock(&mutex);
    for (const struct allocation *a = allocations; a; a = a->next) {
        if (c < a->range.start + a->range.bytes && c + bytes > a->range.start) {
            *range = a->range;
            break;
        }
    }
    pp_emu_unlock(&mutex);
    return !range->start || (c >= range->start && c + bytes <= range->start + range->bytes);
}

bool pp_emu_is_device(const char *function, const char *operand, const void *p, size_t bytes)
{
    struct pp_emu_range range;
    if (pp_emu_find(p, bytes, &range) && range.kind == PP_EMU_DEVICE) return true;
    pp_emu_complain("%s: %s (%p, %zu bytes) %s", function, operand, p, bytes,
                    range.start ? "leaves its allocation, or is the host's" : "is not memory of a device");
    return false;
}

uint64_t pp_emu_used_bytes(int device)
{
    pp_emu_lock(&mutex);
    const uint64_t bytes = used[device];
    pp_emu_unlock(&mutex);
    return bytes;
}

static void poison(void *memory, size_t bytes) { memset(memory, POISON, bytes < POISON_BYTES ? bytes : POISON_BYTES); }

static cudaError_t allocate(void **out, size_t bytes, enum pp_emu_memory kind, int device)
{
    const size_t whole = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct allocation *a = calloc(1, sizeof(*a));
    char *memory = NULL;
    pp_emu_lock(&mutex);
    const bool room = kind != PP_EMU_DEVICE || used[device] + whole <= pp_emu_settings()->memory_bytes;
    if (room && kind == PP_EMU_DEVICE) used[device] += whole;
    pp_emu_unlock(&mutex);
    if (!a || !room || posix_memalign((void **)&memory, ALIGNMENT, bytes + GUARD_BYTES)) {
        free(a);
        return cudaErrorMemoryAllocation;
    }
    poison(memory, bytes);
    memset(memory + bytes, GUARD, GUARD_BYTES);
    a->range = (struct pp_emu_range){.start = memory, .bytes = bytes, .kind = kind, .device = device};
    pp_emu_lock(&mutex);
    a->next = allocations;
    allocations = a;
    pp_emu_unlock(&mutex);
    pp_emu_count(kind == PP_EMU_DEVICE ? PP_EMU_DEVICE_ALLOCATIONS : PP_EMU_HOST_ALLOCATIONS, 1);
    pp_emu_count(kind == PP_EMU_DEVICE ? PP_EMU_LIVE_DEVICE_BYTES : PP_EMU_LIVE_HOST_BYTES, (int64_t)bytes);
    *out = memory;
    return cudaSuccess;
}

static void check_guard(const struct pp_emu_range *r)
{
    for (int i = 0; i < GUARD_BYTES; i++) {
        if (r->start[r->bytes + (size_t)i] == (char)GUARD) continue;
        pp_emu_complain("something wrote %d bytes behind an allocation of %zu bytes", i, r->bytes);
        return;
    }
}

static cudaError_t release(void *p, enum pp_emu_memory kind)
{
    pp_emu_lock(&mutex);
    struct allocation **link = &allocations;
    while (*link && ((*link)->range.start != p || (*link)->range.kind != kind)) link = &(*link)->next;
    struct allocation *a = *link;
    if (a) *link = a->next;
    if (a && kind == PP_EMU_DEVICE) used[a->range.device] -= (a->range.bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    pp_emu_unlock(&mutex);
    if (!a) {
        pp_emu_complain("freed %p, which is not allocated", p);
        return cudaErrorInvalidValue;
    }
    check_guard(&a->range);
    poison(p, a->range.bytes);
    pp_emu_count(kind == PP_EMU_DEVICE ? PP_EMU_LIVE_DEVICE_BYTES : PP_EMU_LIVE_HOST_BYTES, -(int64_t)a->range.bytes);
    free(p);
    free(a);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    PP_EMU_ENTER();
    pp_emu_allocates(__func__);
    if (!out) return pp_emu_error(cudaErrorInvalidValue);
    *out = NULL;
    return bytes ? pp_emu_error(allocate(out, bytes, PP_EMU_DEVICE, pp_emu_current())) : cudaSuccess;
}

/* Waits for the device, as the real one does. */
cudaError_t cudaFree(void *p)
{
    PP_EMU_ENTER();
    struct pp_emu_range range;
    if (!p) return cudaSuccess;
    pp_emu_find(p, 1, &range);
    if (range.device >= 0) pp_emu_drain_device(range.device);
    return pp_emu_error(release(p, PP_EMU_DEVICE));
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    PP_EMU_ENTER();
    pp_emu_allocates(__func__);
    (void)flags;
    if (!out) return pp_emu_error(cudaErrorInvalidValue);
    *out = NULL;
    return bytes ? pp_emu_error(allocate(out, bytes, PP_EMU_PINNED, -1)) : cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    PP_EMU_ENTER();
    pp_emu_allocates(__func__);
    if (!out) return pp_emu_error(cudaErrorInvalidValue);
    *out = NULL;
    return bytes ? pp_emu_error(allocate(out, bytes, PP_EMU_PINNED, -1)) : cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    PP_EMU_ENTER();
    if (!p) return cudaSuccess;
    pp_emu_drain_device(pp_emu_current());
    return pp_emu_error(release(p, PP_EMU_PINNED));
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    PP_EMU_ENTER();
    *total = pp_emu_settings()->memory_bytes;
    *free_bytes = *total - pp_emu_used_bytes(pp_emu_current());
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *p)
{
    PP_EMU_ENTER();
    static const enum cudaMemoryType types[] = {cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice};
    struct pp_emu_range range;
    pp_emu_find(p, 1, &range);
    *out = (struct cudaPointerAttributes){.type = types[range.kind], .device = range.device};
    if (range.kind == PP_EMU_DEVICE) out->devicePointer = (void *)(uintptr_t)p;
    if (range.kind != PP_EMU_DEVICE) out->hostPointer = (void *)(uintptr_t)p;
    return cudaSuccess;
}
