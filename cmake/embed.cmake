# SPDX-License-Identifier: Apache-2.0
# Writes OUT: the bytes of IN as `const char SYMBOL[]`, zero-terminated.
file(READ ${IN} hex HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
file(WRITE ${OUT} "extern const char ${SYMBOL}[];\nconst char ${SYMBOL}[] = {${bytes}0};\n")
