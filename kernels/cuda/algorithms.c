/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/algorithms.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

#define TITLE "ppkit algorithms 1"
#define GRADIENT "e5m2" /* behind the sizes of an FP8 product whose A is a gradient */

enum { HEAD = 3, LINE_BYTES = 512, HEX_DIGITS = 2 * sizeof(cublasLtMatmulAlgo_t) };

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
    if (strlen(hex) != HEX_DIGITS || strspn(hex, "0123456789abcdef") != HEX_DIGITS) return false;
    for (size_t i = 0; i < sizeof(cublasLtMatmulAlgo_t); i++) {
        const char digits[] = {hex[2 * i], hex[2 * i + 1], '\0'};
        to[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return true;
}

/* What follows takes something from a line, with the blanks before it, and goes behind it; false: it is not there. */
static bool take_text(const char **at, const char *text)
{
    const char *begin = *at + strspn(*at, " ");
    const size_t n = strlen(text);
    if (strncmp(begin, text, n)) return false;
    *at = begin + n;
    return true;
}

static bool take_word(const char **at, char *out, size_t size)
{
    const char *begin = *at + strspn(*at, " ");
    const size_t n = strcspn(begin, " ");
    if (n == 0 || n >= size) return false;
    memcpy(out, begin, n);
    out[n] = '\0';
    *at = begin + n;
    return true;
}

static bool take_number(const char **at, int *out)
{
    const char *begin = *at + strspn(*at, " ");
    char *end;
    errno = 0;
    const long value = strtol(begin, &end, 10);
    if (*begin < '0' || *begin > '9' || errno || value > INT_MAX) return false;
    *out = (int)value;
    *at = end;
    return true;
}

static bool take_three(const char **at, const char *between, int *a, int *b, int *c)
{
    return take_number(at, a) && take_text(at, between) && take_number(at, b) && take_text(at, between) &&
           take_number(at, c);
}

/* What is computed, but for its types. */
static bool take_product(const char **at, struct pp_gemm_key *key)
{
    char kernel[24];
    if (!take_word(at, kernel, sizeof kernel) || !take_three(at, "x", &key->m, &key->n, &key->k)) return false;
    key->kernel = kernel_named(kernel);
    key->times = 1;
    if (take_text(at, "times") && !take_number(at, &key->times)) return false;
    key->gradient = take_text(at, GRADIENT);
    return key->kernel >= 0;
}

static bool parse_line(const char *line, struct pp_algorithm *out)
{
    char precision[8], width[8], hex[HEX_DIGITS + 1];
    struct pp_gemm_key *key = &out->key;
    int *alignment = key->alignment;
    if (!take_product(&line, key)) return false;
    if (!take_word(&line, precision, sizeof precision) || !take_word(&line, width, sizeof width)) return false;
    if (!take_text(&line, "align") ||
        !take_three(&line, ",", &alignment[PP_GEMM_FIRST], &alignment[PP_GEMM_SECOND], &alignment[PP_GEMM_RESULT]))
        return false;
    if (!take_text(&line, "sms") || !take_number(&line, &out->sms)) return false;
    if (!take_text(&line, "algorithm") || !take_word(&line, hex, sizeof hex)) return false;
    key->precision = index_of(precision, pp_precision_names, PP_BF16 + 1);
    key->wide = index_of(width, widths, 2);
    return key->precision >= 0 && key->wide >= 0 && parse_bytes(hex, &out->algorithm);
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

static pp_status is_none(const struct pp_algorithms *a)
{
    return pp_fail(PP_INPUT, "%s is no file of algorithms, such as ppprof --algorithms writes", a->path);
}

static pp_status take_head(const struct pp_algorithms *a, const char *line, int number)
{
    const bool is_ours = number == 1 ? !strcmp(line, TITLE) : value_of(line, number == 2 ? "gpu" : "cublas") != NULL;
    return is_ours ? check_origin(a, line) : is_none(a);
}

static pp_status take_line(struct pp_algorithms *a, const char *line, int number)
{
    struct pp_algorithm algorithm = {.line = number};
    if (number <= HEAD) return take_head(a, line, number);
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
    return number >= HEAD ? PP_OK : is_none(a);
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
    if (key->gradient) fputs(" " GRADIENT, out);
    fprintf(out, " %s %s align %d,%d,%d sms %d algorithm ", pp_precision_names[key->precision], widths[key->wide],
            key->alignment[PP_GEMM_FIRST], key->alignment[PP_GEMM_SECOND], key->alignment[PP_GEMM_RESULT],
            algorithm->sms);
    for (size_t i = 0; i < sizeof algorithm->algorithm; i++) fprintf(out, "%02x", bytes[i]);
    fprintf(out, " # %s\n", remark);
}
