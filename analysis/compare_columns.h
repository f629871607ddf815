/* SPDX-License-Identifier: Apache-2.0
 *
 * The columns of the tables that lay predictions beside measurements: what each reads, how it is printed, and by what
 * name the code finds it.
 */
#ifndef PP_ANALYSIS_COMPARE_COLUMNS_H
#define PP_ANALYSIS_COMPARE_COLUMNS_H

/* The columns of view v_configuration that are read, X(id, members of struct pp_column). Settings that are the same for
 * a block of the table stand above it, so they have no heading. */
#define PP_CONFIGURATION_COLUMNS(X)                                                                                    \
    X(PRESET, "preset", "", NULL, 0, 0)                                                                                \
    X(WORKLOAD, "workload", "", NULL, 0, 0)                                                                            \
    X(DEVICE, "device", "", NULL, 0, 0)                                                                                \
    X(THREADS, "threads", "", NULL, 0, 0)                                                                              \
    X(PLAN, "plan", "", NULL, 0, 0)                                                                                    \
    X(COST_SOURCE, "cost_source", "", NULL, 0, 0)                                                                      \
    X(SCHEDULE, "schedule", "", "schedule", 0, 0)                                                                      \
    X(STAGES, "stages", "", "P", 0, 0)                                                                                 \
    X(VIRTUAL, "virtual", "", "V", 0, 0)                                                                               \
    X(CHUNKS, "chunks", "", "chunks", 0, 0, .twin = "M")                                                               \
    X(MICROBATCHES, "microbatches", "", "M", 0, 0)                                                                     \
    X(REPLICAS, "replicas", "", "D", 0, 0)                                                                             \
    X(TENSOR, "tensor", "", "T", 0, 0)                                                                                 \
    X(EXPERT_PARALLEL, "expert_parallel", "", NULL, 0, 0)                                                              \
    X(CONTEXT_PARALLEL, "context_parallel", "", NULL, 0, 0)                                                            \
    X(CHECKPOINT, "checkpoint", "", "checkpoint", 0, 0)                                                                \
    X(TRANSPORT, "transport", "", "transport", 0, 0)                                                                   \
    X(BATCH_W, "batch_w", "", "batch W", 0, 0, .usual = "1")                                                           \
    X(OPTIONS, "options", "", "options", 0, 0)                                                                         \
    X(PREDICTED_MS, "predicted_ms", "ms/batch", "predicted", 1, 2)                                                     \
    X(MEASURED_MS, "measured_ms", "ms/batch", "measured", 1, 2)                                                        \
    X(ERROR_PERCENT, "error_percent", "ms/batch", "error %", 1, 1)                                                     \
    X(MEASURED_P5_MS, "measured_p5_ms", "ms/batch", "p5", 1, 2, .spare = 1)                                            \
    X(MEASURED_P95_MS, "measured_p95_ms", "ms/batch", "p95", 1, 2, .spare = 1)                                         \
    X(STEPS, "steps", "ms/batch", "steps", 0, 0, .spare = 4)                                                           \
    X(PREDICTED_BUBBLE, "predicted_bubble", "bubble %", "pred.", 100, 1)                                               \
    X(MEASURED_BUBBLE, "measured_bubble", "bubble %", "meas.", 100, 1)                                                 \
    X(BUBBLE_ERROR_POINTS, "bubble_error_points", "bubble %", NULL, 1, 1)                                              \
    X(PREDICTED_PEAK_BYTES, "predicted_peak_bytes", "peak", "pred.", .bytes = true)                                    \
    X(MEASURED_PEAK_BYTES, "measured_peak_bytes", "peak", "arena", .bytes = true)                                      \
    X(PREDICTED_PROCESS_BYTES, "predicted_process_bytes", "process", "pred.", .bytes = true, .spare = 3)               \
    X(MEASURED_PROCESS_BYTES, "measured_process_bytes", "process", "meas.", .bytes = true, .spare = 2)                 \
    X(PREDICTED_RUN, "predicted_run", "runs", "pred.", 0, 0)                                                           \
    X(MEASURED_RUN, "measured_run", "runs", "meas.", 0, 0)

enum pp_configuration_column {
#define X(id, ...) PP_CONF_##id,
    PP_CONFIGURATION_COLUMNS(X)
#undef X
};

/* Tasks of one kind in the predicted run ?1 and in the measured run ?2, X(id, key, its value in SQL, other members of
 * struct pp_column). */
#define PP_OF_KIND_COLUMNS(X)                                                                                          \
    X(PREDICTED_RUN, "predicted_run", "nullif(?1, -1)", "", NULL, 0, 0)                                                \
    X(MEASURED_RUN, "measured_run", "nullif(?2, -1)", "", NULL, 0, 0)                                                  \
    X(KIND, "kind", "kind", "", "kind", 0, 0)                                                                          \
    X(PER_STEP, "per_step", "max(per_step)", "", "tasks/step", 1, 0)                                                   \
    X(PREDICTED_US, "predicted_us", "max(mean_us) FILTER (WHERE run = ?1)", "us/task", "predicted", 1, 1)              \
    X(MEASURED_US, "measured_us", "max(mean_us) FILTER (WHERE run = ?2)", "us/task", "measured", 1, 1)                 \
    X(ERROR_PERCENT, "error_percent",                                                                                  \
      "100.0 * (max(mean_us) FILTER (WHERE run = ?1) / max(mean_us) FILTER (WHERE run = ?2) - 1)", "us/task",          \
      "error %", 1, 1)                                                                                                 \
    X(PREDICTED_MS, "predicted_ms", "max(ms_per_step) FILTER (WHERE run = ?1)", "ms/step, all ranks", "predicted", 1,  \
      2)                                                                                                               \
    X(MEASURED_MS, "measured_ms", "max(ms_per_step) FILTER (WHERE run = ?2)", "ms/step, all ranks", "measured", 1, 2)

enum pp_of_kind_column {
#define X(id, ...) PP_OF_KIND_##id,
    PP_OF_KIND_COLUMNS(X)
#undef X
};

#endif
