/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/plugin.h"

#include "kernels/cuda/device.h"

static const struct pp_queue_ops queue_ops = {
    .use = pp_cuda_use,
    .compute = pp_cuda_compute,
    .queue_create = pp_cuda_queue_create,
    .queue_destroy = pp_cuda_queue_destroy,
    .native = pp_cuda_native,
    .mark_create = pp_cuda_mark_create,
    .mark_destroy = pp_cuda_mark_destroy,
    .record = pp_cuda_record,
    .wait = pp_cuda_wait,
    .reached = pp_cuda_reached,
    .elapsed = pp_cuda_elapsed,
    .host_alloc = pp_cuda_host_alloc,
    .host_release = pp_cuda_host_release,
    .copy = pp_cuda_queue_copy,
    .copy_strided = pp_cuda_queue_copy_strided,
    .prepare = pp_cuda_prepare_program,
    .launches = pp_cuda_queue_launches,
    .run = pp_cuda_queue_run,
    .sum = pp_cuda_queue_sum,
    .narrow = pp_cuda_queue_narrow,
    .widen = pp_cuda_queue_widen,
    .clip_factor = pp_cuda_queue_clip,
    .measure_begin = pp_cuda_measure_begin,
    .measure_end = pp_cuda_measure_end,
    .tune = pp_cuda_tune,
    .probe = pp_cuda_probe,
    .push_range = pp_cuda_push_range,
    .pop_range = pp_cuda_pop_range,
};

static const struct pp_backend backend = {
    .name = "cuda",
    .summary = "NVIDIA GPUs; products by cuBLAS",
    .queue = &queue_ops,
    .available = pp_cuda_available,
    .sharers = pp_cuda_sharers,
    .open = pp_cuda_open,
    .close = pp_cuda_close,
    .alloc = pp_cuda_alloc,
    .release = pp_cuda_release,
    .available_bytes = pp_cuda_available_bytes,
    .upload = pp_cuda_upload,
    .download = pp_cuda_download,
    .draw = pp_cuda_draw,
    .run = pp_cuda_run,
    .describe = pp_cuda_describe,
    .mixed = pp_cuda_mixed,
    .reference_ns = pp_cuda_reference_ns,
};

extern const struct pp_plugin pp_plugin;
__attribute__((visibility("default"))) const struct pp_plugin pp_plugin = {PP_PLUGIN_ABI, PP_VERSION, &backend};
