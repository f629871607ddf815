/* SPDX-License-Identifier: Apache-2.0
 *
 * What a machine file says of single products and sums. kernel_times MACHINE reads lines such as the following; with
 * "library" behind, attention is that of other software.
 *   product bf16 1 4096 4096 4096      so many C [m,n] = A [m,k] B [k,n] at once: times, m, n, k; "wide" behind: C is
 *                                      float32 whatever the precision; "adds" behind: it adds to C; fp8: the factors
 *                                      are FP8, C is bfloat16
 *   attention forward 2 16 8192 128 causal    or backward; rows, heads, tokens, width of a head; or full; in bf16
 *   sum 2 8 1048576                    rounds of a ring (1: all-gather, reduce-scatter; 2: all-reduce), devices, bytes
 *   exchange 8 1048576                 all to all: devices, bytes of each; without the copy of what is a device's own
 * and answers each with a line of microseconds, in which nothing is for launching it. The devices are in one host.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "kernels/kernels.h"
#include "sim/machine_calls.h"
#include "sim/placement.h"

static int find_precision(const char *name)
{
    int i = 0;
    while (i < PP_PRECISIONS && strcmp(pp_precision_names[i], name) != 0) i++;
    return i;
}

static bool time_product(const struct pp_machine *m, const char *line, double *us)
{
    char precision[8], words[2][8] = {"", ""};
    struct pp_call call = {.kernel = PP_KERNEL_GEMM_NN};
    struct pp_gemm_dims *n = &call.gemm;
    if (sscanf(line, "product %7s %d %d %d %d %7s %7s", precision, &n->times, &n->m, &n->n, &n->k, words[0], words[1]) <
        5)
        return false;
    for (int i = 0; i < 2; i++) {
        n->wide = n->wide || strcmp(words[i], "wide") == 0;
        if (strcmp(words[i], "adds") == 0)
            call.kernel = PP_KERNEL_GEMM_TN, n->mode = PP_GEMM_GRADIENT, call.adds = true;
    }
    call.precision = find_precision(precision);
    if (call.precision == PP_PRECISIONS || n->m < 1 || n->n < 1 || n->k < 1 || n->times < 1) return false;
    if (call.precision == PP_FP8) call.kernel = PP_KERNEL_GEMM_FP8, call.precision = PP_BF16;
    const struct pp_ref somewhere = {.region = PP_MEM_WORK}; /* what lies nowhere is not moved */
    call.at.gemm = (struct pp_gemm_refs){somewhere, somewhere, somewhere};
    const struct pp_work work = pp_call_work(&call, m->cores == 0);
    *us = pp_machine_work_ns(m, &work) / 1e3;
    return true;
}

static bool time_attention(const struct pp_machine *m, const char *line, double *us)
{
    char pass[16], mask[16];
    struct pp_call call = {.precision = PP_BF16};
    struct pp_attention_dims *n = &call.attention;
    if (sscanf(line, "attention %15s %d %d %d %d %15s", pass, &n->rows, &n->heads, &n->seq, &n->dh, mask) != 6)
        return false;
    if (strcmp(pass, "forward") != 0 && strcmp(pass, "backward") != 0) return false;
    if (strcmp(mask, "full") != 0 && strcmp(mask, "causal") != 0) return false;
    call.kernel = strcmp(pass, "backward") == 0 ? PP_KERNEL_FLASH_GRAD : PP_KERNEL_FLASH;
    n->causal = strcmp(mask, "causal") == 0;
    if (n->rows < 1 || n->seq < 1 || n->heads < 1 || n->dh < 1) return false;
    for (int i = 0; i < 5; i++) call.ref[i].region = PP_MEM_WORK;
    if (call.kernel == PP_KERNEL_FLASH) call.at.flash.bias.region = PP_MEM_NONE;
    const struct pp_work work = pp_call_work(&call, m->cores == 0);
    *us = pp_machine_work_ns(m, &work) / 1e3;
    return true;
}

static bool time_join(const struct pp_machine *m, const char *line, double *us)
{
    struct pp_join_work join = {.rounds = 1};
    int devices;
    long long bytes;
    if (sscanf(line, "exchange %d %lld", &devices, &bytes) == 2)
        join.op = PP_JOIN_ALL_TO_ALL;
    else if (sscanf(line, "sum %d %d %lld", &join.rounds, &devices, &bytes) != 3)
        return false;
    if (devices < 1 || bytes < 0) return false;
    join.bytes = bytes;
    struct pp_placement placement = pp_placement_on(m);
    placement.own_ns = placement.own_ns_per_byte = 0;
    const struct pp_ring ring = pp_placement_ring(&placement, &(struct pp_group){0, 1, devices, 0, 0});
    *us = (double)pp_placement_join_ns(&placement, &ring, &join, pp_machine_sum_link(m)) / 1e3;
    return true;
}

int main(int argc, char **argv)
{
    struct pp_machine machine;
    char line[128];
    double us;
    const bool library = argc == 3 && strcmp(argv[2], "library") == 0;
    if (argc != 2 && !library) return fprintf(stderr, "usage: kernel_times MACHINE [library] <LINES\n"), 2;
    if (pp_machine_find(argv[1], &machine) != PP_OK || (library && pp_machine_take_library(&machine) != PP_OK))
        return fprintf(stderr, "%s\n", pp_message()), 1;
    while (fgets(line, sizeof line, stdin)) {
        if (!time_product(&machine, line, &us) && !time_attention(&machine, line, &us) &&
            !time_join(&machine, line, &us))
            return fprintf(stderr, "kernel_times: what is \"%s\"?\n", line), 1;
        printf("%.3f\n", us);
    }
    return 0;
}
