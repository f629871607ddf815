/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes of memory as people read them: in KiB below 10 MiB, in MiB below 10 GiB, else in GiB.
 */
#ifndef PP_CORE_BASE_MEMORY_TEXT_H
#define PP_CORE_BASE_MEMORY_TEXT_H

struct pp_memory_unit {
    const char *name;
    double bytes; /* of one */
    int decimals; /* to print a size with */
};

/* The unit for sizes of which the largest has so many bytes. It is never NULL. */
const struct pp_memory_unit *pp_memory_unit(double most_bytes);

/* One size with its unit, such as "72.77 GiB". Returns buf. */
enum { PP_MEMORY_TEXT = 32 };
const char *pp_memory_text(double bytes, char buf[PP_MEMORY_TEXT]);

#endif
