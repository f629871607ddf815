/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/gemm.h"

#include <cblas.h>
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/base/log.h"
#include "kernels/cpu/cpu.h"

static const char library_name[] = "libopenblas.so.0";

static struct {
    __typeof__(cblas_sgemm) *sgemm;
    __typeof__(openblas_set_num_threads) *set_num_threads;
    __typeof__(openblas_get_config) *get_config;
    __typeof__(openblas_get_corename) *get_corename;
    pp_status status;
    char message[PP_MESSAGE_BYTES]; /* of status */
    char text[96];
} blas;

static char wanted_core[32];
static pthread_once_t once = PTHREAD_ONCE_INIT;

void pp_gemm_want_core(const char *core) { snprintf(wanted_core, sizeof wanted_core, "%s", core ? core : ""); }

static const struct {
    const char *name;
    void *slot;
} symbols[] = {{"cblas_sgemm", &blas.sgemm},
               {"openblas_set_num_threads", &blas.set_num_threads},
               {"openblas_get_config", &blas.get_config},
               {"openblas_get_corename", &blas.get_corename}};

static pp_status find_symbols(void *library)
{
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol)
            return pp_fail(PP_UNSUPPORTED,
                           "%s has no %s: install OpenBLAS with its CBLAS interface (libopenblas0-pthread)",
                           library_name, symbols[i].name);
        memcpy(symbols[i].slot, &symbol, sizeof symbol);
    }
    return PP_OK;
}

static pp_status check_core(void)
{
    if (!*wanted_core || !strcasecmp(wanted_core, blas.get_corename())) return PP_OK;
    return pp_fail(PP_USAGE, "--blas-core %s: this OpenBLAS or processor has no such core, it took %s", wanted_core,
                   blas.get_corename());
}

static sigjmp_buf before_trial;

static void end_trial(int number)
{
    (void)number;
    siglongjmp(before_trial, 1);
}

/* Products of each kind with the kernels of the wanted core. */
static void multiply(void)
{
    enum { N = 64 };
    static float a[N * N], b[N * N], c[N * N];
    for (int op = 0; op <= PP_GEMM_TN; op++) pp_gemm((enum pp_gemm_op)op, N, N, N, a, N, b, N, 0, c, N);
}

/* OpenBLAS takes some cores at the user's word: has the processor their instructions? Without a wanted core it asks the
 * processor itself. */
static pp_status try_core(void)
{
    const struct sigaction catch = {.sa_handler = end_trial};
    struct sigaction old;
    volatile bool runs = false;
    if (!*wanted_core) return PP_OK;
    sigaction(SIGILL, &catch, &old);
    if (sigsetjmp(before_trial, 1) == 0) {
        multiply();
        runs = true;
    }
    sigaction(SIGILL, &old, NULL);
    if (runs) return PP_OK;
    return pp_fail(PP_USAGE,
                   "--blas-core %s: this processor lacks instructions of that core; name another, or leave it out",
                   wanted_core);
}

/* Length of the first two words: "OpenBLAS 0.3.21" of what OpenBLAS says about itself. */
static int two_words(const char *text)
{
    size_t first = strcspn(text, " ");
    return (int)(first + (text[first] != 0) + strcspn(text + first + (text[first] != 0), " "));
}

/* core: NULL lets OpenBLAS choose. */
static pp_status open_library(const char *core, void **library)
{
    if (core)
        setenv("OPENBLAS_CORETYPE", core, 1);
    else
        unsetenv("OPENBLAS_CORETYPE");
    setenv("OPENBLAS_NUM_THREADS", "1", 1); /* no thread pool before we know how many are wanted */
    *library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    if (!*library) return pp_fail(PP_UNSUPPORTED, "cannot load OpenBLAS (%s): install libopenblas0-pthread", dlerror());
    return find_symbols(*library);
}

/* What OpenBLAS takes every x86 processor for that is younger than itself (SSE3, a fraction of the speed), and what
 * such a processor can run instead. */
static const char stranger[] = "Prescott";
static const struct {
    const char *isa, *core;
} instead[] = {{"avx512", "SkylakeX"}, {"avx2", "Haswell"}};

/* The core to ask for where OpenBLAS did not know the processor; NULL if it did, or if there is no better one. */
static const char *better_core(void)
{
    const char *isa = pp_cpu_isa_best()->name;
    if (strcasecmp(blas.get_corename(), stranger) != 0) return NULL;
    for (size_t i = 0; i < sizeof instead / sizeof instead[0]; i++)
        if (strcmp(isa, instead[i].isa) == 0) return instead[i].core;
    return NULL;
}

static pp_status load(void)
{
    void *library;
    PP_TRY(open_library(*wanted_core ? wanted_core : NULL, &library));
    PP_TRY(check_core());
    PP_TRY(try_core());
    const char *better = *wanted_core ? NULL : better_core();
    if (better) { /* OpenBLAS chooses while it is loaded */
        dlclose(library);
        PP_TRY(open_library(better, &library));
        if (strcasecmp(blas.get_corename(), better) != 0)
            pp_warn("OpenBLAS does not know this processor and took its slow kernels for a %s; OPENBLAS_CORETYPE=%s in "
                    "the environment of %s did not help",
                    blas.get_corename(), better, library_name);
    }
    snprintf(blas.text, sizeof blas.text, "%.*s %s", two_words(blas.get_config()), blas.get_config(),
             blas.get_corename());
    return PP_OK;
}

static void load_once(void)
{
    blas.status = load();
    if (blas.status != PP_OK) snprintf(blas.message, sizeof blas.message, "%s", pp_message());
}

pp_status pp_gemm_load(void)
{
    pthread_once(&once, load_once);
    return blas.status == PP_OK ? PP_OK : pp_fail(blas.status, "%s", blas.message);
}

pp_status pp_gemm_open(int threads)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    static int set; /* 0: none yet */
    const int wanted = threads > 0 ? threads : 1;
    PP_TRY(pp_gemm_load());
    pthread_mutex_lock(&one_at_a_time);
    if (wanted != set) blas.set_num_threads(wanted);
    set = wanted;
    pthread_mutex_unlock(&one_at_a_time);
    return PP_OK;
}

void pp_gemm(enum pp_gemm_op op, int m, int n, int k, const float *a, int lda, const float *b, int ldb, float beta,
             float *c, int ldc)
{
    blas.sgemm(CblasRowMajor, op == PP_GEMM_TN ? CblasTrans : CblasNoTrans,
               op == PP_GEMM_NT ? CblasTrans : CblasNoTrans, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
}

const char *pp_gemm_describe(void) { return blas.text; }
