/* SPDX-License-Identifier: Apache-2.0 */
#include "core/split_time.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A stand-in with three stages of one layer each tells embedding, layer and decoder apart. */
enum { STAND_IN = 3 };

static pp_status program_ns(const struct pp_program *program, const struct pp_config *config,
                            const struct pp_model_ops *ops, const char *device, struct pp_db *db, double *sum)
{
    char name[128];
    for (int i = 0; i < program->ncalls; i++) {
        int64_t ns = 0;
        bool found = false;
        ops->call_name(&program->calls[i], name, sizeof name);
        PP_TRY(pp_db_find_kernel(db, device, config->threads, name, &ns, &found));
        if (!found)
            return pp_fail(
                PP_INPUT,
                "--split time: the profile has no time of the kernel %s; run ppprof with the same model, rows "
                "and chunks first",
                name);
        *sum += (double)ns;
    }
    return PP_OK;
}

/* Forward and backward of one stage of the stand-in. */
static pp_status stage_ns(const struct pp_model *model, int stage, int rows, const struct pp_config *config,
                          const struct pp_model_ops *ops, const char *device, struct pp_db *db, double *sum)
{
    static const int kinds[] = {PP_F, PP_B};
    *sum = 0;
    for (int i = 0; i < 2; i++) {
        struct pp_program program;
        struct pp_class cls = {.kind = kinds[i], .stage = stage, .rows = rows};
        struct pp_program_spec spec = {.seq = config->tokens, .slot_rows = rows, .training = true};
        PP_TRY(ops->program(model, &cls, &spec, &program));
        pp_status status = program_ns(&program, config, ops, device, db, sum);
        pp_program_free(&program);
        PP_TRY(status);
    }
    return PP_OK;
}

static double surplus(double with, double without) { return with > without ? with - without : 0; }

static pp_status measure(struct pp_config *config, const struct pp_model_ops *ops, const char *device, struct pp_db *db)
{
    struct pp_model *model = NULL;
    struct pp_shape shape;
    double ns[STAND_IN];
    pp_status status = PP_OK;
    pp_config_shape(config, &shape);
    shape.layers = STAND_IN;
    int rows = (config->rows + config->chunks.v[0] - 1) / config->chunks.v[0];
    PP_TRY(ops->create(&shape, STAND_IN, "uniform", NULL, &model));
    for (int s = 0; s < STAND_IN; s++) PP_TRY_DONE(stage_ns(model, s, rows, config, ops, device, db, &ns[s]));
    PP_TRY_DONE(PP_NEW(&config->layer_ns, config->layers + 2));
    config->layer_ns[0] = surplus(ns[0], ns[1]);
    for (int l = 1; l <= config->layers; l++) config->layer_ns[l] = ns[1];
    config->layer_ns[config->layers + 1] = surplus(ns[2], ns[1]);
done:
    ops->destroy(model);
    return status;
}

pp_status pp_split_time(struct pp_config *config, const struct pp_model_ops *ops, const char *device, struct pp_db *db)
{
    const char *path = config->db ? config->db : "pp.db";
    if (strcmp(config->split, "time") != 0) return PP_OK;
    if (db) return measure(config, ops, device, db);
    if (access(path, F_OK) != 0)
        return pp_fail(PP_INPUT, "--split time needs the kernel times in %s, which is not there; run ppprof first",
                       path);
    PP_TRY(pp_db_open(path, PP_DB_READ, &db));
    pp_status status = measure(config, ops, device, db);
    pp_status closed = pp_db_close(db);
    return status == PP_OK ? closed : status;
}

void pp_split_time_free(struct pp_config *config)
{
    free(config->layer_ns);
    config->layer_ns = NULL;
}
