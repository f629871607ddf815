/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of files in a folder, or beside a file, that the user names. Nothing may be written over them
 * (distinct_files.h).
 */
#ifndef PP_CORE_OPTIONS_FILE_NAMES_H
#define PP_CORE_OPTIONS_FILE_NAMES_H

/* The parts of a text and of tokens in a folder of --data: X(part, name), X(part, number of its name, name). A part of
 * tokens has one of its names. */
#define PP_TEXT_FILES(X) X(TRAIN, "train.txt") X(VALID, "valid.txt") X(TEST, "test.txt")
#define PP_TOKEN_FILES(X)                                                                                              \
    X(TRAIN, 0, "train.bin") X(VALID, 0, "val.bin") X(VALID, 1, "valid.bin") X(TEST, 0, "test.bin")
enum { PP_TOKEN_NAMES = 2 };

/* Behind the name of --save: that of the checkpoints of --save-every. */
#define PP_CHECKPOINT_SUFFIX ".checkpoint"

#endif
