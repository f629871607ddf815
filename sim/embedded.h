/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that are inside the program, by name (the file's, without folder and ending). Made by pp_embed_all() of
 * cmake/PpLibrary.cmake; a name of NULL ends each list.
 */
#ifndef PP_SIM_EMBEDDED_H
#define PP_SIM_EMBEDDED_H

struct pp_embedded {
    const char *name, *text;
};
extern const struct pp_embedded pp_embedded_profiles[];
extern const struct pp_embedded pp_embedded_machines[]; /* the first is the default */

#endif
