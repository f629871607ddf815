/* SPDX-License-Identifier: Apache-2.0
 *
 * Advice where nothing of a sweep fits into memory: a change of options with which a configuration fits. This is a part
 * of the program ppsim.
 */
#ifndef PP_SIM_ADVICE_H
#define PP_SIM_ADVICE_H

#include "sim/predict.h"

/* A configuration that does not fit. */
struct pp_large {
    struct pp_point point;
    int replicas, context, experts; /* D, C, N */
    double bytes;                   /* of the device that needs most */
    double fixed;                   /* of these, bytes of parameters, gradients and optimizer; 0: not known yet */
};

/* Text for messages: pp_point_text(), with C, N and D if they are not 1. Returns buf. */
enum { PP_LARGE_TEXT = PP_POINT_TEXT + 96 };
const char *pp_large_text(const struct pp_large *large, char buf[PP_LARGE_TEXT]);

/* Looks for changes that make one of large[n] fit; large[0] needs least memory of all. checkpointed: the sweep has
 * recomputed stages or layers, so other checkpoint modes are not tried. Sets large[].fixed where it finds it.
 *
 * Returns buf, with a text that goes on behind the name of large[0]. It has up to two parts:
 *   - if parameters, gradients and optimizer of large[0] alone do not fit: how large they are;
 *   - the options with which something fits; if there are none, those that save most, or what would help, or try more.
 * It is "" if nothing can be said. */
enum { PP_ADVICE_TEXT = PP_LARGE_TEXT + 512 };
const char *pp_advice(const struct pp_predictor *p, struct pp_large *large, int n, bool checkpointed,
                      char buf[PP_ADVICE_TEXT]);

#endif
