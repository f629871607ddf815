/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/gemm.h"

#include <cblas.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char library_name[] = "libopenblas.so.0";

static struct {
    __typeof__(cblas_sgemm) *sgemm;
    __typeof__(openblas_set_num_threads) *set_num_threads;
    __typeof__(openblas_get_config) *get_config;
    __typeof__(openblas_get_corename) *get_corename;
    pp_status status;
    char message[256]; /* of status */
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

/* Length of the first two words: "OpenBLAS 0.3.21" of what OpenBLAS says about itself. */
static int two_words(const char *text)
{
    size_t first = strcspn(text, " ");
    return (int)(first + (text[first] != 0) + strcspn(text + first + (text[first] != 0), " "));
}

static pp_status load(void)
{
    if (*wanted_core)
        setenv("OPENBLAS_CORETYPE", wanted_core, 1);
    else
        unsetenv("OPENBLAS_CORETYPE");
    setenv("OPENBLAS_NUM_THREADS", "1", 1); /* no thread pool before we know how many are wanted */
    void *library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    if (!library) return pp_fail(PP_UNSUPPORTED, "cannot load OpenBLAS (%s): install libopenblas0-pthread", dlerror());
    PP_TRY(find_symbols(library));
    PP_TRY(check_core());
    snprintf(blas.text, sizeof blas.text, "%.*s %s", two_words(blas.get_config()), blas.get_config(),
             blas.get_corename());
    return PP_OK;
}

static void load_once(void)
{
    blas.status = load();
    if (blas.status != PP_OK) snprintf(blas.message, sizeof blas.message, "%s", pp_message());
}

pp_status pp_gemm_open(int threads)
{
    pthread_once(&once, load_once);
    if (blas.status != PP_OK) return pp_fail(blas.status, "%s", blas.message);
    blas.set_num_threads(threads > 0 ? threads : 1);
    return PP_OK;
}

void pp_gemm(enum pp_gemm_op op, int m, int n, int k, const float *a, int lda, const float *b, int ldb, float beta,
             float *c, int ldc)
{
    blas.sgemm(CblasRowMajor, op == PP_GEMM_TN ? CblasTrans : CblasNoTrans,
               op == PP_GEMM_NT ? CblasTrans : CblasNoTrans, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
}

const char *pp_gemm_describe(void) { return blas.text; }
