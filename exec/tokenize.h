/* SPDX-License-Identifier: Apache-2.0
 *
 * Text into words by the rules that torchtext calls basic_english: lower case; blanks around ' . , ( ) ! ?; a blank
 * for ; and : and <br />; double quotes deleted; split on white space.
 */
#ifndef PP_EXEC_TOKENIZE_H
#define PP_EXEC_TOKENIZE_H

#include <stddef.h>

#include "core/base/status.h"

/* One word, not terminated, valid during the call. */
typedef pp_status (*pp_word_fn)(void *arg, const char *word, size_t length);

/* Calls `fn` for each word of a text file in UTF-8. PP_INPUT names file and line for bytes that are no text. */
pp_status pp_tokenize_file(const char *path, pp_word_fn fn, void *arg) PP_MUST_CHECK;

#endif
