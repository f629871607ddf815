/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/algorithms.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

#define TITLE "ppkit algorithms 1"
#define GRADIENT " e5m2" /* behind the sizes of an FP8 product whose A is a gradient */

enum { LINE_BYTES = 512, HEX_DIGITS = 2 * sizeof(cublasLtMatmulAlgo_t) };

static const char *const widths[] = {"narrow", "wide"};

void pp_algorithms_begin(struct pp_algorithms *a, const char *gpu)
{
    *a = (struct pp_algorithms){0};
    snprintf(a->gpu, sizeof a->gpu, "%s", gpu ? gpu : "");
}

void pp_algorithms_free(struct pp_algorithms *a)
{
    free(a->v);
    a->v = NULL;
    a->n = 0;
    a->room = 0;
}

pp_status pp_algorithms_add(struct pp_algorithms *a, const struct pp_algorithm *algorithm)
{
    PP_TRY(PP_GROW(&a->v, a->n + 1, &a->room));
    a->v[a->n++] = *algorithm;
    return PP_OK;
}

const struct pp_algorithm *pp_algorithms_find(const struct pp_algorithms *a, const struct pp_gemm_key *key, int sms)
{
    for (int i = 0; i < a->n; i++)
        if (a->v[i].sms == sms && !memcmp(&a->v[i].key, key, sizeof *key)) return &a->v[i];
    return NULL;
}

/* ---- lines ---- */

/* The index of `word` among n words; -1 if it is none of them. */
static int index_of(const char *word, const char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(word, words[i])) return i;
    return -1;
}

static int kernel_named(const char *name)
{
    for (int i = 0; i < PP_KERNELS; i++)
        if (!strcmp(name, pp_kernel_table[i].name)) return i;
    return -1;
}

static bool parse_bytes(const char *hex, void *out)
{
    unsigned char *to = out;
    if (strlen(hex) != HEX_DIGITS) return false;
    for (size_t i = 0; i < sizeof(cublasLtMatmulAlgo_t); i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1) return false;
        to[i] = (unsigned char)byte;
    }
    return true;
}

_Static_assert(HEX_DIGITS + 1 == 129, "parse_line() reads so many characters: one too many is seen");
static bool parse_line(const char *line, struct pp_algorithm *out)
{
    char kernel[24], precision[8], width[8], hex[HEX_DIGITS + 2];
    struct pp_gemm_key *key = &out->key;
    int used = 0, more = 0;
    if (sscanf(line, "%23s %dx%dx%d%n", kernel, &key->m, &key->n, &key->k, &used) != 4) return false;
    key->times = 1;
    if (sscanf(line + used, " times%d%n", &key->times, &more) == 1) used += more;
    key->gradient = !strncmp(line + used, GRADIENT, strlen(GRADIENT));
    if (key->gradient) used += (int)strlen(GRADIENT);
    if (sscanf(line + used, " %7s %7s align %d,%d,%d sms %d algorithm %129[0-9a-f]", precision, width,
               &key->alignment[PP_GEMM_FIRST], &key->alignment[PP_GEMM_SECOND], &key->alignment[PP_GEMM_RESULT],
               &out->sms, hex) != 7)
        return false;
    key->kernel = kernel_named(kernel);
    key->precision = index_of(precision, pp_precision_names, PP_BF16 + 1);
    key->wide = index_of(width, widths, 2);
    return key->kernel >= 0 && key->precision >= 0 && key->wide >= 0 && parse_bytes(hex, &out->algorithm);
}

/* The rest of a line that begins with `word` and a blank, else NULL. */
static const char *value_of(const char *line, const char *word)
{
    const size_t n = strlen(word);
    return !strncmp(line, word, n) && line[n] == ' ' ? line + n + 1 : NULL;
}

/* Lines 2 and 3 name the GPU and the version of cuBLAS that the file is for. PP_INPUT if they are not ours. */
static pp_status check_origin(const struct pp_algorithms *a, const char *line)
{
    char version[24];
    const char *gpu = value_of(line, "gpu"), *cublas = value_of(line, "cublas");
    snprintf(version, sizeof version, "%zu", cublasLtGetVersion());
    if (gpu && strcmp(gpu, a->gpu))
        return pp_fail(PP_INPUT,
                       "%s is of another GPU (%s) than this (%s): let ppprof measure for this one, into another "
                       "file",
                       a->path, gpu, a->gpu);
    if (cublas && strcmp(cublas, version))
        return pp_fail(PP_INPUT,
                       "%s is of another cuBLAS (%s) than this (%s): let ppprof measure with this one, into "
                       "another file",
                       a->path, cublas, version);
    return PP_OK;
}

static pp_status take_line(struct pp_algorithms *a, const char *line, int number)
{
    static const char *const head[] = {TITLE, "gpu ", "cublas "};
    enum { HEAD = sizeof head / sizeof head[0] };
    struct pp_algorithm algorithm = {.line = number};
    if (number <= HEAD) {
        const char *expected = head[number - 1];
        if (strncmp(line, expected, strlen(expected)))
            return pp_fail(PP_INPUT, "%s is no file of algorithms, such as ppprof --algorithms writes", a->path);
        return check_origin(a, line);
    }
    if (!*line || *line == '#') return PP_OK;
    if (!parse_line(line, &algorithm))
        return pp_fail(PP_INPUT, "%s, line %d, is no algorithm: %.60s", a->path, number, line);
    return pp_algorithms_add(a, &algorithm);
}

/* FNV-1a */
static uint64_t hash_more(uint64_t hash, const char *text)
{
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash;
}

static pp_status read_lines(struct pp_algorithms *a, FILE *in)
{
    char line[LINE_BYTES];
    int number = 0;
    a->hash = UINT64_C(0xcbf29ce484222325);
    while (fgets(line, sizeof line, in)) {
        a->hash = hash_more(a->hash, line);
        line[strcspn(line, "\n")] = '\0';
        PP_TRY(take_line(a, line, ++number));
    }
    if (ferror(in)) return pp_fail(PP_IO, "cannot read %s: %s", a->path, strerror(errno));
    return number >= 3 ? PP_OK : take_line(a, "", 1);
}

pp_status pp_algorithms_read(struct pp_algorithms *a, const char *path)
{
    FILE *in = fopen(path, "r");
    a->path = path;
    if (!in)
        return pp_fail(PP_INPUT, "--algorithms: cannot read %s: %s; ppprof --algorithms makes such a file", path,
                       strerror(errno));
    const pp_status status = read_lines(a, in);
    fclose(in);
    return pp_prefix(status, "--algorithms");
}

void pp_algorithms_write_head(const struct pp_algorithms *a, FILE *out)
{
    fprintf(out, TITLE "\ngpu %s\ncublas %zu\n", a->gpu, cublasLtGetVersion());
}

void pp_algorithms_write(const struct pp_algorithm *algorithm, const char *remark, FILE *out)
{
    const struct pp_gemm_key *key = &algorithm->key;
    const unsigned char *bytes = (const unsigned char *)&algorithm->algorithm;
    fprintf(out, "%s %dx%dx%d", pp_kernel_table[key->kernel].name, key->m, key->n, key->k);
    if (key->times > 1) fprintf(out, " times%d", key->times);
    fprintf(out, "%s %s %s align %d,%d,%d sms %d algorithm ", key->gradient ? GRADIENT : "",
            pp_precision_names[key->precision], widths[key->wide], key->alignment[PP_GEMM_FIRST],
            key->alignment[PP_GEMM_SECOND], key->alignment[PP_GEMM_RESULT], algorithm->sms);
    for (size_t i = 0; i < sizeof algorithm->algorithm; i++) fprintf(out, "%02x", bytes[i]);
    fprintf(out, " # %s\n", remark);
}
