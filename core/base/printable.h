/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes text from foreign files safe to print on terminals, and in tables and pictures.
 */
#ifndef PP_CORE_BASE_PRINTABLE_H
#define PP_CORE_BASE_PRINTABLE_H

/* Replaces every byte of a control character (newline, tab, and the controls above 127 included), and every byte that
 * is not valid UTF-8, by '?'. Returns text. */
char *pp_printable(char *text);

#endif
