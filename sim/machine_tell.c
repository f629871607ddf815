/* SPDX-License-Identifier: Apache-2.0
 *
 * What is told of machines on standard error.
 */
#include "core/base/log.h"
#include "core/base/text.h"
#include "sim/machine.h"

/* For a user's file: its most important figures, which show if one was written in another unit. Its texts may be those
 * of the machine that it was copied from. */
static void write_figures(const struct pp_machine *m, char *buf, size_t size)
{
    struct pp_text text = pp_text_in(buf, size);
    const int precision = m->peak_flops_per_ns[PP_BF16] > 0 ? PP_BF16 : PP_FP32;
    if (!m->of_file) return;
    pp_text_add(&text, ", %.4g TFLOP/s in %s", m->peak_flops_per_ns[precision] / 1e3, pp_precision_names[precision]);
    if (m->usable_bytes > 0) pp_text_add(&text, ", %.4g GiB", (double)m->usable_bytes / 0x1p30);
    pp_text_add(&text, ", links of %g GB/s", m->link_bytes_per_ns);
    if (m->host_devices > 0)
        pp_text_add(&text, ", %g GB/s between hosts of %d device%s", m->network_bytes_per_ns, m->host_devices,
                    pp_plural(m->host_devices));
    pp_text_add(&text, "; in the words of its file");
}

void pp_machine_tell(const struct pp_machine *m)
{
    char figures[224];
    write_figures(m, figures, sizeof figures);
    pp_info_wrapped("times of machine %s%s: %s (%s)", m->name, figures, m->summary, m->source);
}

void pp_machine_tell_sheet(const struct pp_machine *m, const struct pp_config *config)
{
    const struct pp_shape *model = &config->model;
    /* As published runs took, in the words of docs/results/published.md: dense models, those in FP8, mixtures; with
     * ppkit's own attention, and with that of other software. */
    static const char *const expected[2][3] = {
        {"expect 0.9 to 1.3 times as much", "expect 0.8 to 1.0 times as much on H100s, and less on B200s,",
         "expect 0.7 to 1.5 times as much"},
        {"expect 1.0 to 1.4 times as much", "expect 1.0 to 1.3 times as much", "expect 0.8 to 2.1 times as much"}};
    const bool flash = model->attention == PP_ATTENTION_FLASH && pp_in_bf16(model->precision);
    const bool library = pp_config_library_attends(config);
    const char *attention = "";
    if (library)
        attention = ". Attention is that of other software";
    else if (flash && !config->library_attention && m->attention[0] > 0)
        attention = ". Attention is ppkit's own, and other software's is faster: --attention-kernel library";
    pp_info_wrapped(
        "times by a data sheet are not measured%s: %s with software that is tuned for the machine, more with "
        "other (docs/results/published.md)%s",
        m->of_file ? ", and those of a file of yours nobody has compared with runs. On machines of ppkit" : "",
        expected[library][model->experts > 0 ? 2 : model->precision == PP_FP8], attention);
}
