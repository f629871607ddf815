/* SPDX-License-Identifier: Apache-2.0
 *
 * What --split says: by what layers, or blocks of --times, are cut into stages.
 */
#ifndef PP_CORE_SHAPE_SPLIT_H
#define PP_CORE_SHAPE_SPLIT_H

#include <string.h>

/* PP_SPLIT_BY_LIST: a text that is no name, the layers of each stage ("3,5"). */
enum pp_split_by { PP_SPLIT_BY_COUNT, PP_SPLIT_BY_PARAMETERS, PP_SPLIT_BY_TIME, PP_SPLIT_BY_LIST };

/* split: NULL is uniform. */
static inline enum pp_split_by pp_split_of(const char *split)
{
    static const char *const names[PP_SPLIT_BY_LIST] = {
        [PP_SPLIT_BY_COUNT] = "uniform", [PP_SPLIT_BY_PARAMETERS] = "parameters", [PP_SPLIT_BY_TIME] = "time"};
    int at = 0;
    while (split && at < PP_SPLIT_BY_LIST && strcmp(split, names[at]) != 0) at++;
    return (enum pp_split_by)at;
}

/* Number of stages that may have no layer, but the embedding or the decoder alone: none if layers are cut uniformly,
 * else the first and the last. */
static inline int pp_split_ends(const char *split) { return pp_split_of(split) == PP_SPLIT_BY_COUNT ? 0 : 2; }

#endif
