/* SPDX-License-Identifier: Apache-2.0
 *
 * Damaged database files. The input changes bytes of a good one: three bytes say where, the fourth is the new value;
 * what is left over at the end cuts the file short.
 */
#include "tests/fuzz/fuzz_db.h"

enum { CHANGE = 4 };

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_db_make(0);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t *changed;
    size_t n;
    const uint8_t *good = fuzz_db_bytes(&n);
    if (!changed) changed = malloc(n);
    memcpy(changed, good, n);
    for (; size >= CHANGE; data += CHANGE, size -= CHANGE)
        changed[(data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16) % n] = data[3];
    if (size == 2) n = n * (data[0] | (size_t)data[1] << 8) / 65536;
    fuzz_write(fuzz_db_path(), changed, n);
    fuzz_db_read();
    fuzz_db_write();
    return 0;
}
