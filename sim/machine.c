/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/machine.h"

#include <errno.h>
#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file_label.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/printable.h"
#include "core/options/listing.h"
#include "core/shape/shape.h"
#include "sim/embedded.h"

enum type { TEXT, COUNT, REAL, YES_NO };

/* A field of a JSON object. REAL: the struct has the value times `unit` (in ns, bytes/ns, FLOP/ns); the value in the
 * file is at least `least`. */
struct field {
    const char *key;
    enum type type;
    size_t offset, size; /* size: bytes of a text, with its 0 */
    double unit, least;
};

static const double largest = 1e12; /* the largest value in a file */
static const double most_taken = 0.9;
#define LEAST_GB_PER_S 1e-3

#define AT(field) offsetof(struct pp_machine, field)
#define TEXT_FIELD(key, field)                                                                                         \
    {                                                                                                                  \
        key, TEXT, AT(field), sizeof((struct pp_machine *)0)->field, 0, 0                                              \
    }

static const struct field top_fields[] = {TEXT_FIELD("name", name),
                                          TEXT_FIELD("summary", summary),
                                          TEXT_FIELD("source", source),
                                          {"cores", COUNT, AT(cores), 0, 0, 0},
                                          {"call_overhead_us", REAL, AT(call_overhead_ns), 0, 1e3, 0},
                                          {"issue_us", REAL, AT(issue_ns), 0, 1e3, 0},
                                          {"issue_latency_us", REAL, AT(issue_latency_ns), 0, 1e3, 0}};
static const struct field memory_fields[] = {{"usable_gib", REAL, AT(usable_bytes), 0, 0x1p30, 0},
                                             {"gb_per_s", REAL, AT(bytes_per_ns), 0, 1, LEAST_GB_PER_S},
                                             {"loaded_gb_per_s", REAL, AT(loaded_bytes_per_ns), 0, 1, LEAST_GB_PER_S},
                                             {"shared_gb_per_s", REAL, AT(shared_bytes_per_ns), 0, 1, 0}};
static const struct field link_fields[] = {{"latency_us", REAL, AT(link_latency_ns), 0, 1e3, 0},
                                           {"overhead_us", REAL, AT(link_overhead_ns), 0, 1e3, 0},
                                           {"gb_per_s", REAL, AT(link_bytes_per_ns), 0, 1, LEAST_GB_PER_S},
                                           {"receiver_copies", YES_NO, AT(receiver_copies), 0, 0, 0},
                                           {"posts_in_order", YES_NO, AT(posts_in_order), 0, 0, 0}};
static const struct field reduce_fields[] = {{"latency_us", REAL, AT(reduce_latency_ns), 0, 1e3, 0},
                                             {"gb_per_s", REAL, AT(reduce_bytes_per_ns), 0, 1, LEAST_GB_PER_S},
                                             {"takes", REAL, AT(reduce_takes), 0, 1, 0}};
#define TILES(field) offsetof(struct pp_tiles, field)
static const struct field tiles_fields[] = {{"multiprocessors", COUNT, TILES(multiprocessors), 0, 0, 0},
                                            {"start_us", REAL, TILES(start_ns), 0, 1e3, 0},
                                            {"peak", REAL, TILES(peak), 0, 1, 0.01},
                                            {"load", REAL, TILES(load), 0, 1, 0},
                                            {"store", REAL, TILES(store), 0, 1, 0},
                                            {"split_us", REAL, TILES(split_ns), 0, 1e3, 0},
                                            {"memory", REAL, TILES(memory), 0, 1, 0.01}};
static const struct field attention_fields[] = {{"forward", REAL, AT(attention[0]), 0, 1, 0.01},
                                                {"backward", REAL, AT(attention[1]), 0, 1, 0.01}};
static const struct field host_fields[] = {{"devices", COUNT, AT(host_devices), 0, 0, 0}};
static const struct field network_fields[] = {{"latency_us", REAL, AT(network_latency_ns), 0, 1e3, 0},
                                              {"gb_per_s", REAL, AT(network_bytes_per_ns), 0, 1, 0}};

#define GROUP(key, fields)                                                                                             \
    {                                                                                                                  \
        key, fields, sizeof fields / sizeof *fields, false                                                             \
    }

static const struct group {
    const char *key; /* of the object with these fields; NULL: the fields are at the top */
    const struct field *fields;
    size_t n;
    bool optional; /* the object may be left out */
} groups[] = {GROUP(NULL, top_fields),
              GROUP("memory", memory_fields),
              GROUP("link", link_fields),
              GROUP("reduce", reduce_fields),
              GROUP("host", host_fields),
              GROUP("network", network_fields),
              {"attention", attention_fields, 2, true}};
enum { GROUPS = sizeof groups / sizeof *groups };

/* The place of a value, for messages: file, object, key. */
struct spot {
    const char *where, *object, *key;
};

static pp_status bad(struct spot spot, const char *why)
{
    return pp_fail(PP_INPUT, "machine file %s: \"%s%s%s\" %s", spot.where, spot.object ? spot.object : "",
                   spot.object ? "." : "", spot.key, why);
}

static pp_status read_text(struct spot spot, const json_t *value, char *out, size_t size)
{
    if (!json_is_string(value)) return bad(spot, "must be a text");
    if (json_string_length(value) == 0 || json_string_length(value) >= size ||
        strlen(json_string_value(value)) != json_string_length(value))
        return pp_fail(PP_INPUT, "machine file %s: \"%s\" must have 1 to %zu characters, none of them a zero byte",
                       spot.where, spot.key, size - 1);
    memcpy(out, json_string_value(value), json_string_length(value) + 1);
    if (strcmp(pp_printable(out), json_string_value(value)) == 0) return PP_OK;
    return bad(spot, "has a tab, a line end or another control character in it");
}

static pp_status read_real(struct spot spot, const json_t *value, double least, double *out)
{
    char why[96];
    *out = json_number_value(value);
    if (json_is_number(value) && *out >= least && *out <= largest) return PP_OK;
    snprintf(why, sizeof why, "must be a number from %g to %g", least, largest);
    return bad(spot, why);
}

/* out: the struct in which field->offset is an offset. */
static pp_status read_field(struct spot spot, const struct field *field, const json_t *value, void *out)
{
    char *at = (char *)out + field->offset;
    double real;
    switch (field->type) {
    case TEXT:
        return read_text(spot, value, at, field->size);
    case COUNT:
        if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > 65536)
            return bad(spot, "must be a whole number from 0 to 65536");
        *(int *)(void *)at = (int)json_integer_value(value);
        return PP_OK;
    case YES_NO:
        if (!json_is_boolean(value)) return bad(spot, "must be true or false");
        *(bool *)at = json_is_true(value);
        return PP_OK;
    default:
        PP_TRY(read_real(spot, value, field->least, &real));
        *(double *)(void *)at = real * field->unit;
        return PP_OK;
    }
}

static bool is_group(const char *key)
{
    for (int g = 1; g < GROUPS; g++)
        if (strcmp(groups[g].key, key) == 0) return true;
    return strcmp(key, "precisions") == 0;
}

static pp_status refuse_unknown(const char *where, const struct group *group, json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        bool known = !group->key && is_group(key);
        for (size_t i = 0; i < group->n; i++) known = known || strcmp(group->fields[i].key, key) == 0;
        if (!known)
            return bad((struct spot){where, group->key, key},
                       "is not a field of a machine; remove it or correct its name");
    }
    return PP_OK;
}

static pp_status read_fields(const char *where, const struct group *group, json_t *object, void *out)
{
    for (size_t i = 0; i < group->n; i++) {
        struct spot spot = {where, group->key, group->fields[i].key};
        const json_t *value = json_object_get(object, spot.key);
        if (!value) return bad(spot, "is missing");
        PP_TRY(read_field(spot, &group->fields[i], value, out));
    }
    return refuse_unknown(where, group, object);
}

static pp_status read_group(const char *where, const struct group *group, json_t *root, struct pp_machine *out)
{
    json_t *object = group->key ? json_object_get(root, group->key) : root;
    if (!object && group->optional) return PP_OK;
    if (json_is_object(object)) return read_fields(where, group, object, out);
    return group->key ? bad((struct spot){where, NULL, group->key}, "must be there and be an object")
                      : pp_fail(PP_INPUT, "machine file %s: it is no JSON object", where);
}

static int find_precision(const char *name)
{
    int i = 0;
    while (i < PP_PRECISIONS && strcmp(pp_precision_names[i], name) != 0) i++;
    return i;
}

/* Reads "tiles" of a precision, if it is there. */
static pp_status read_tiles(const char *where, const char *path, json_t *entry, struct pp_tiles *out)
{
    char key[64]; /* long enough: there are three paths */
    json_t *tiles = json_object_get(entry, "tiles");
    if (!tiles) return PP_OK;
    if (!json_is_object(tiles)) return bad((struct spot){where, path, "tiles"}, "must be an object");
    snprintf(key, sizeof key, "%s.tiles", path);
    const struct group group = GROUP(key, tiles_fields);
    return read_fields(where, &group, tiles, out);
}

static pp_status read_precision(const char *where, int precision, json_t *entry, struct pp_machine *out)
{
    double peak, efficiency;
    char path[48];
    const char *name = pp_precision_names[precision];
    const size_t fields = json_object_get(entry, "tiles") ? 3 : 2;
    if (!json_is_object(entry) || json_object_size(entry) != fields)
        return bad((struct spot){where, "precisions", name},
                   "must hold peak_gflops and efficiency, and may hold tiles");
    snprintf(path, sizeof path, "precisions.%s", name);
    PP_TRY(read_real((struct spot){where, path, "peak_gflops"}, json_object_get(entry, "peak_gflops"), 1e-3, &peak));
    PP_TRY(
        read_real((struct spot){where, path, "efficiency"}, json_object_get(entry, "efficiency"), 1e-3, &efficiency));
    if (efficiency > 1) return bad((struct spot){where, path, "efficiency"}, "is more than 1");
    out->peak_flops_per_ns[precision] = peak;
    out->flops_per_ns[precision] = peak * efficiency;
    return read_tiles(where, path, entry, &out->tiles[precision]);
}

/* Reads the precisions that the machine has, at least one. */
static pp_status read_precisions(const char *where, json_t *root, struct pp_machine *out)
{
    json_t *all = json_object_get(root, "precisions"), *entry;
    const char *name;
    if (!json_is_object(all) || json_object_size(all) == 0)
        return bad((struct spot){where, NULL, "precisions"}, "must be there and be an object that is not empty");
    json_object_foreach(all, name, entry)
    {
        const int precision = find_precision(name);
        if (precision == PP_PRECISIONS)
            return bad((struct spot){where, "precisions", name}, "is none of fp32, tf32, bf16, fp8");
        PP_TRY(read_precision(where, precision, entry, out));
    }
    if (out->flops_per_ns[PP_FP32] > 0) return PP_OK;
    return bad((struct spot){where, "precisions", "fp32"}, "is missing: what is no product is computed in it");
}

/* Checks fields against each other. */
static pp_status check_tiles(const char *where, const struct pp_machine *m)
{
    for (int i = 0; i < PP_PRECISIONS; i++) {
        const struct spot spot = {where, "precisions", pp_precision_names[i]};
        if (m->tiles[i].multiprocessors > 0 && m->cores > 0)
            return bad(spot, "must have no tiles where \"cores\" is not 0: they are of GPUs");
        if (m->tiles[i].peak > 1) return bad(spot, "has a \"peak\" of tiles that is more than 1");
    }
    return PP_OK;
}

static pp_status check_sums(const char *where, const struct pp_machine *m)
{
    const struct spot spot = {where, "reduce", "takes"};
    if (m->reduce_takes > most_taken) return bad(spot, "is more than 0.9: a computation beside a sum must go on");
    if (m->reduce_takes > 0 && m->cores > 0)
        return bad(spot, "must be 0 where \"cores\" is not: sums share the workers' cores");
    return PP_OK;
}

static pp_status check_attention(const char *where, const struct pp_machine *m)
{
    for (int i = 0; i < 2; i++)
        if (m->attention[i] > 1)
            return bad((struct spot){where, "attention", attention_fields[i].key}, "is more than 1");
    if (m->attention[0] > 0 && m->cores > 0)
        return bad((struct spot){where, NULL, "attention"}, "is of GPUs: leave it out where \"cores\" is not 0");
    return PP_OK;
}

static pp_status check_hosts(const char *where, const struct pp_machine *m)
{
    if (m->host_devices == 0) return PP_OK;
    if (m->cores > 0)
        return bad((struct spot){where, "host", "devices"},
                   "must be 0 where \"cores\" is not: all workers share the cores of one host");
    if (m->network_bytes_per_ns < LEAST_GB_PER_S)
        return bad((struct spot){where, "network", "gb_per_s"},
                   "must be 0.001 at least where \"host.devices\" is not 0");
    return PP_OK;
}

pp_status pp_machine_parse(const char *text, size_t size, const char *where, struct pp_machine *out)
{
    json_error_t error;
    *out = (struct pp_machine){0};
    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) text += 3, size -= 3; /* a byte order mark */
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!root && !error.text[0]) return pp_fail(PP_NOMEM, "there is not enough memory to read machine file %s", where);
    if (!root) return pp_fail(PP_INPUT, "machine file %s, line %d: %s", where, error.line, error.text);
    pp_status status = PP_OK;
    for (int g = 0; g < GROUPS && status == PP_OK; g++) status = read_group(where, &groups[g], root, out);
    if (status == PP_OK) status = read_precisions(where, root, out);
    if (status == PP_OK) status = check_hosts(where, out);
    if (status == PP_OK) status = check_tiles(where, out);
    if (status == PP_OK) status = check_sums(where, out);
    if (status == PP_OK) status = check_attention(where, out);
    json_decref(root);
    return status;
}

enum { FILE_BYTES = 1 << 16 };

/* The machine is named by the label of its file, so a changed copy is another machine, even if it kept its name. */
static pp_status parse_file(const char *text, size_t size, const char *path, struct pp_machine *out)
{
    PP_TRY(pp_machine_parse(text, size, path, out));
    pp_file_label(path, pp_hash_bytes(0, text, size), out->name, sizeof out->name);
    out->of_file = true;
    return PP_OK;
}

static pp_status read_file(const char *path, struct pp_machine *out)
{
    FILE *file = fopen(path, "rb");
    if (!file) return pp_fail(PP_INPUT, "cannot open the machine file %s: %s", path, strerror(errno));
    char *text;
    pp_status status = PP_NEW(&text, FILE_BYTES);
    if (status == PP_OK) {
        size_t size = fread(text, 1, FILE_BYTES, file);
        if (ferror(file))
            status = pp_fail(PP_IO, "cannot read the machine file %s: %s", path, strerror(errno));
        else if (size == FILE_BYTES)
            status = pp_fail(PP_INPUT, "machine file %s is larger than %d bytes", path, FILE_BYTES - 1);
        else
            status = parse_file(text, size, path, out);
        free(text);
    }
    fclose(file);
    return status;
}

static bool is_path(const char *name)
{
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 5 && strcmp(name + n - 5, ".json") == 0);
}

pp_status pp_machine_find(const char *name, struct pp_machine *out)
{
    char names[256] = "";
    if (name && is_path(name)) return read_file(name, out);
    for (const struct pp_embedded *m = pp_embedded_machines; m->name; m++) {
        if (!name || strcmp(m->name, name) == 0) return pp_machine_parse(m->text, strlen(m->text), m->name, out);
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", m->name);
    }
    return pp_fail(PP_USAGE, "--machine: there is no machine \"%s\"; name one of %s, or a file such as ./%s.json", name,
                   names, name);
}

pp_status pp_machine_take_library(struct pp_machine *m)
{
    static const char added[] = "+library";
    const size_t length = strlen(m->name), most = sizeof m->name - sizeof added;
    if (m->attention[0] == 0 || m->peak_flops_per_ns[PP_BF16] == 0)
        return pp_fail(PP_USAGE,
                       "--attention-kernel library: the file of machine %s does not say what attention in bf16 reaches "
                       "in other software (\"attention\"); leave the option out",
                       m->name);
    memcpy(m->name + (length < most ? length : most), added, sizeof added);
    m->library_attention = true;
    return PP_OK;
}

json_t *pp_machine_list(void)
{
    json_t *rows = json_array();
    struct pp_machine found;
    for (const struct pp_embedded *m = pp_embedded_machines; m->name; m++)
        if (pp_machine_find(m->name, &found) == PP_OK)
            rows = pp_json_append(rows, pp_list_row(found.name, found.summary));
        else
            pp_warn("the list lacks machine %s: %s", m->name, pp_message());
    return rows;
}
