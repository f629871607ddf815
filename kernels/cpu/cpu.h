/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU backend. Its kernels (simd/) are compiled once for each vector width; the widest that the machine has is
 * taken.
 */
#ifndef PP_KERNELS_CPU_CPU_H
#define PP_KERNELS_CPU_CPU_H

#include "core/model/backend.h"
#include "core/model/program.h"
#include "kernels/kernels.h"

extern const struct pp_backend pp_backend_cpu;

/* A call with the addresses of its operands, by number or by name; NULL where an operand lies nowhere. */
struct pp_cpu_call {
    const struct pp_call *call;
    const struct pp_frame *frame;
    union {
        void *p[PP_CALL_REFS];
        union pp_call_memory at;
    };
};

/* The kernels for one vector width. */
struct pp_cpu_isa {
    const char *name; /* "avx512" */
    bool (*supported)(void);
    void (*run[PP_KERNELS])(const struct pp_cpu_call *);
    void (*add)(float *to, const float *a, const float *b, int64_t n);
    /* Fixed register-only arithmetic of a few hundred microseconds; the result only keeps it from being optimised
     * away. */
    float (*spin)(void);
    /* Dropout's random numbers for `rows` successive row vectors of 4*quads numbers each; out has room for
     * rows*quads*4, rounded up to PP_RANDOM_ROUND. For tests. */
    void (*random)(const uint32_t key[2], uint32_t step, uint32_t site, uint32_t row, int rows, int quads,
                   uint32_t *out);
    /* to[i] = exp(from[i]). For tests. */
    void (*exp)(float *to, const float *from, int64_t n);
};

enum { PP_RANDOM_ROUND = 64 };

/* Widest first; the last is supported everywhere. NULL past the end. */
const struct pp_cpu_isa *pp_cpu_isa_at(int i);
const struct pp_cpu_isa *pp_cpu_isa_best(void);

/* Runs a program with the kernels of one vector width; the rest as struct pp_backend's run. */
void pp_cpu_run(const struct pp_cpu_isa *isa, const struct pp_program *program, const struct pp_frame *frame,
                const struct pp_progress *progress, int64_t *kernel_ns);

#endif
