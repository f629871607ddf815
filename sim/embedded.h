/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that are embedded in the program, by the file's name without folder and ending. pp_embed_all() of
 * cmake/PpLibrary.cmake makes the lists; an element with a NULL name ends each of them.
 */
#ifndef PP_SIM_EMBEDDED_H
#define PP_SIM_EMBEDDED_H

struct pp_embedded {
    const char *name, *text;
};
extern const struct pp_embedded pp_embedded_profiles[];
extern const struct pp_embedded pp_embedded_machines[]; /* the first one is the default machine */

#endif
