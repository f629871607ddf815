/* SPDX-License-Identifier: Apache-2.0 */
#include "emulator.h"

#ifdef PP_EMU_TSAN
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
void __tsan_acquire(void *address);
void __tsan_release(void *address);

void pp_emu_hide(void) { AnnotateIgnoreSyncBegin(__FILE__, __LINE__); }
void pp_emu_show(void) { AnnotateIgnoreSyncEnd(__FILE__, __LINE__); }
void pp_emu_promise(void *address) { __tsan_release(address); }
void pp_emu_rely(void *address) { __tsan_acquire(address); }
#else
void pp_emu_hide(void) {}
void pp_emu_show(void) {}
void pp_emu_promise(void *address) { (void)address; }
void pp_emu_rely(void *address) { (void)address; }
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
