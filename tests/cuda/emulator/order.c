/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "emulator.h"

#ifdef PP_EMU_TSAN
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
void __tsan_acquire(void *address);
void __tsan_release(void *address);

void pp_emu_hide(void) { AnnotateIgnoreSyncBegin(__FILE__, __LINE__); }
void pp_emu_show(void) { AnnotateIgnoreSyncEnd(__FILE__, __LINE__); }
void pp_emu_promise(void *address) { __tsan_release(address); }
void pp_emu_rely(void *address) { __tsan_acquire(address); }
static void ignore_writes(void) { AnnotateIgnoreWritesBegin(__FILE__, __LINE__); }
static void see_writes(void) { AnnotateIgnoreWritesEnd(__FILE__, __LINE__); }
#else
void pp_emu_hide(void) {}
void pp_emu_show(void) {}
void pp_emu_promise(void *address) { (void)address; }
void pp_emu_rely(void *address) { (void)address; }
static void ignore_writes(void) {}
static void see_writes(void) {}
#endif

void pp_emu_lock(pthread_mutex_t *mutex)
{
    pp_emu_hide();
    pthread_mutex_lock(mutex);
}

void pp_emu_unlock(pthread_mutex_t *mutex)
{
    pthread_mutex_unlock(mutex);
    pp_emu_show();
}

void *pp_emu_new(size_t bytes)
{
    ignore_writes();
    void *memory = calloc(1, bytes);
    see_writes();
    if (!memory) abort();
    return memory;
}

void pp_emu_prepare(pthread_mutex_t *mutex, pthread_cond_t *condition)
{
    ignore_writes();
    pthread_mutex_init(mutex, NULL);
    pthread_cond_init(condition, NULL);
    see_writes();
}

void pp_emu_retire(void *memory, pthread_mutex_t *mutex, pthread_cond_t *condition)
{
    ignore_writes();
    pthread_mutex_destroy(mutex);
    pthread_cond_destroy(condition);
    free(memory);
    see_writes();
}
