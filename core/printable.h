/* SPDX-License-Identifier: Apache-2.0
 *
 * Text from files that others wrote, for terminals, tables and pictures.
 */
#ifndef PP_CORE_PRINTABLE_H
#define PP_CORE_PRINTABLE_H

/* Puts '?' in place of every byte of a control character (also newline, tab, and those above 127) and of what is not
 * UTF-8. Returns text. */
char *pp_printable(char *text);

#endif
