/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of an emulated device, for tests that call the launchers of attention themselves.
 */
#ifndef PP_TESTS_ATTENTION_BUFFER_H
#define PP_TESTS_ATTENTION_BUFFER_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <vector>

extern "C" {
#include <cmocka.h>

#include "kernels/kernels.h"
}

#include "kernels/cuda/attention.cuh"

/* Device memory, filled with numbers that look random; freed at the end of its scope. */
template <typename T> struct buffer {
    T *p;
    int64_t n;

    buffer(int64_t count, uint32_t salt) : p(NULL), n(count)
    {
        std::vector<T> host((size_t)n);
        uint32_t x = salt * 2654435761u + 1;
        for (T &value : host) {
            x = x * 1664525u + 1013904223u;
            value = pp_from_float<T>((float)(x >> 8) * 0x1p-23f - 1);
        }
        assert_int_equal(cudaMalloc((void **)&p, sizeof(T) * (size_t)n), cudaSuccess);
        put(0, host);
    }
    buffer(const buffer &) = delete;
    buffer &operator=(const buffer &) = delete;
    ~buffer() { cudaFree(p); }

    void put(int64_t at, const std::vector<T> &from)
    {
        assert_int_equal(cudaMemcpy(p + at, from.data(), sizeof(T) * from.size(), cudaMemcpyHostToDevice), cudaSuccess);
    }
    std::vector<float> get() const
    {
        std::vector<T> host((size_t)n);
        assert_int_equal(cudaMemcpy(host.data(), p, sizeof(T) * host.size(), cudaMemcpyDeviceToHost), cudaSuccess);
        std::vector<float> out;
        for (T value : host) out.push_back(pp_to_float(value));
        return out;
    }
};

#endif
