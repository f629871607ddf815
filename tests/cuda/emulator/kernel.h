/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA C++ for a host compiler: g++ -x c++ -include kernel.h compiles a .cu file that launches through PP_LAUNCH.
 *
 * What it knows is what the kernels use: indices, shared memory, barriers, shuffles with masks, the usual intrinsics,
 * tensor cores (mma.h).
 * Shared memory and fresh device memory hold NaN. grid.h runs the result.
 */
#ifndef PP_EMULATOR_KERNEL_H
#define PP_EMULATOR_KERNEL_H

#include <math.h>
#include <string.h>

#include <algorithm>
#include <tuple>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "grid.h"

#define PP_EMULATOR 1

/* PP_EMU_RACES: every access to memory is looked at (race.c). PP_EMU_UNSEEN: but those of the emulator's functions. */
#ifdef PP_EMU_RACES
#include <atomic>

#include "race.h"
#define PP_EMU_UNSEEN __attribute__((no_sanitize("thread")))
#else
#define PP_EMU_UNSEEN
#define pp_emu_race_start(launch, kernel) (void)0
#define pp_emu_race_barrier() (void)0
#define pp_emu_race_warp() (void)0
#define pp_emu_race_variable(p, bytes) (void)0
#define pp_emu_race_look(p, bytes, writes) (void)0
#endif

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __managed__
#undef __launch_bounds__
#undef __forceinline__
#undef __noinline__
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))

extern "C" {
extern __thread uint3 threadIdx __attribute__((tls_model("initial-exec")));
extern __thread uint3 blockIdx __attribute__((tls_model("initial-exec")));
extern __thread uint3 blockDim __attribute__((tls_model("initial-exec")));
extern __thread uint3 gridDim __attribute__((tls_model("initial-exec")));
}
static const int warpSize = PP_EMU_WARP;

namespace pp_emu
{

#ifdef PP_EMU_RACES
inline std::atomic<unsigned> launches;
static inline unsigned next_launch() { return ++launches; }
#else
static inline unsigned next_launch() { return 0; }
#endif

template <class... P> struct call {
    void (*kernel)(P...);
    std::tuple<std::remove_cv_t<P>...> arguments;
    const char *name;
    unsigned launch;
    /* Unseen: until the start is told, what it reads would be an access of the launch before. */
    PP_EMU_UNSEEN static void run(void *self)
    {
        auto *c = static_cast<call *>(self);
        pp_emu_race_start(c->launch, c->name);
        std::apply(c->kernel, c->arguments);
    }
    static void release(void *self) { delete static_cast<call *>(self); }
};

/* The arguments are copied now, as CUDA does. */
template <class... P, class... A>
void launch(void (*kernel)(P...), const char *name, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
            A... arguments)
{
    static_assert(sizeof...(P) == sizeof...(A), "number of kernel arguments");
    pp_emu_kernel k = {};
    k.name = name;
    k.function = reinterpret_cast<const void *>(kernel);
    k.grid = grid;
    k.block = block;
    k.shared_bytes = shared_bytes;
    k.body = call<P...>::run;
    k.release = call<P...>::release;
    k.arguments = new call<P...>{kernel, std::tuple<std::remove_cv_t<P>...>(arguments...), name, next_launch()};
    pp_emu_launch(&k, stream);
}

template <class T> uint64_t bits(T value)
{
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "shuffles move up to 8 bytes");
    uint64_t b = 0;
    memcpy(&b, &value, sizeof(T));
    return b;
}

template <class T> T value(uint64_t bits)
{
    T v;
    memcpy(&v, &bits, sizeof(T));
    return v;
}

inline int lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % PP_EMU_WARP; }

} // namespace pp_emu

#define PP_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                      \
    pp_emu::launch(kernel, #kernel, grid, block, shared_bytes, stream, ##__VA_ARGS__)
#define PP_SHARED(type, name) type *const name = static_cast<type *>(pp_emu_shared())
#define PP_SHARED_ONE(type, name)                                                                                      \
    static const char pp_site_of_##name = 0;                                                                           \
    type &name = *static_cast<std::add_pointer_t<type>>(pp_emu_variable(&pp_site_of_##name, sizeof(type)));            \
    pp_emu_race_variable(&name, sizeof(type))
#define PP_LOOK(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)

static inline void __syncthreads()
{
    pp_emu_syncthreads();
    pp_emu_race_barrier();
}
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    pp_emu_syncwarp(mask);
    pp_emu_race_warp();
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}

/* Lanes beyond the segment of `width` keep their own value, as PTX says. */
template <class T> T __shfl_sync(unsigned mask, T v, int source, int width = PP_EMU_WARP)
{
    const int first = pp_emu::lane() & ~(width - 1);
    return pp_emu::value<T>(pp_emu_shuffle(mask, pp_emu::bits(v), first + (source & (width - 1))));
}

template <class T> T __shfl_xor_sync(unsigned mask, T v, int flip, int width = PP_EMU_WARP)
{
    const int me = pp_emu::lane(), end = (me & ~(width - 1)) + width, from = me ^ flip;
    return pp_emu::value<T>(pp_emu_shuffle(mask, pp_emu::bits(v), from < end ? from : me));
}

template <class T> T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = PP_EMU_WARP)
{
    const int me = pp_emu::lane(), end = (me & ~(width - 1)) + width, from = me + static_cast<int>(by);
    return pp_emu::value<T>(pp_emu_shuffle(mask, pp_emu::bits(v), from < end ? from : me));
}

template <class T> T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = PP_EMU_WARP)
{
    const int me = pp_emu::lane(), first = me & ~(width - 1), from = me - static_cast<int>(by);
    return pp_emu::value<T>(pp_emu_shuffle(mask, pp_emu::bits(v), from >= first ? from : me));
}

static inline unsigned __ballot_sync(unsigned mask, int predicate) { return pp_emu_ballot(mask, predicate); }
static inline int __any_sync(unsigned mask, int predicate) { return pp_emu_ballot(mask, predicate) != 0; }
static inline int __all_sync(unsigned mask, int predicate) { return pp_emu_ballot(mask, !predicate) == 0; }

using std::max;
using std::min;
static inline long long max(int a, long long b) { return a > b ? a : b; }
static inline long long max(long long a, int b) { return a > b ? a : b; }
static inline long long min(int a, long long b) { return a < b ? a : b; }
static inline long long min(long long a, int b) { return a < b ? a : b; }

template <class T> T __ldg(const T *p) { return *p; }
template <class T> T __ldcs(const T *p) { return *p; }
template <class T> T __ldcg(const T *p) { return *p; }
template <class T> void __stcs(T *p, T v) { *p = v; }
template <class T> void __stcg(T *p, T v) { *p = v; }

/* Of one device: streams of it run beside each other. */
template <class T> T atomicAdd(T *p, T v)
{
    if constexpr (std::is_integral<T>::value) {
        return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
    } else {
        T old = *p, next;
        do next = old + v;
        while (!__atomic_compare_exchange(p, &old, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
        return old;
    }
}

static inline unsigned __float_as_uint(float f) { return pp_emu::value<unsigned>(pp_emu::bits(f)); }
static inline int __float_as_int(float f) { return pp_emu::value<int>(pp_emu::bits(f)); }
static inline float __uint_as_float(unsigned u) { return pp_emu::value<float>(u); }
static inline float __int_as_float(int i) { return pp_emu::value<float>(pp_emu::bits(i)); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((uint64_t)a * b >> 32); }
static inline int __mulhi(int a, int b) { return static_cast<int>((int64_t)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
static inline int __popc(unsigned u) { return __builtin_popcount(u); }
static inline int __ffs(int i) { return __builtin_ffs(i); }
static inline int __clz(int i) { return i ? __builtin_clz(i) : 32; }

static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline void sincospi(double x, double *s, double *c) { sincos(x * M_PI, s, c); }
static inline void sincospif(float x, float *s, float *c) { sincosf(x * (float)M_PI, s, c); }
/* Macros: the C library has functions of these names. */
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __powf(x, y) powf(x, y)
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __dsqrt_rn(double a) { return sqrt(a); }

static inline long long clock64() { return pp_emu_clock(); }
static inline void __nanosleep(unsigned) {}

template <class... P> cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute, int value)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attribute, value);
}
template <class... P> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *out, void (*kernel)(P...))
{
    return cudaFuncGetAttributes(out, reinterpret_cast<const void *>(kernel));
}

#include "mma.h"

#endif
