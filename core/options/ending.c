/* SPDX-License-Identifier: Apache-2.0 */
#include "core/options/ending.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

#include "core/options/main.h"

static struct {
    void (*act)(void *context);
    void *context;
    pthread_t thread;
    sem_t wake; /* wakes the thread: a signal has come, or pp_ending_end() was called */
    _Atomic bool signalled;
    _Atomic int64_t first_ns;
} ending;

static void on_signal(int number)
{
    (void)number;
    const enum pp_turn turn = pp_signal_turn(&ending.first_ns);
    if (turn == PP_TURN_FIRST) {
        ending.signalled = true;
        sem_post(&ending.wake);
    }
    if (turn == PP_TURN_IMPATIENT) pp_end_by_signal();
}

static void at_once(int number)
{
    (void)number;
    pp_end_by_signal();
}

static void *wait_for_signal(void *unused)
{
    while (sem_wait(&ending.wake) != 0) continue;
    if (!ending.signalled) return unused;
    ending.act(ending.context);
    pp_end_by_signal();
    return unused;
}

/* Starts the thread with all signals blocked, so that other threads get them. */
static int start_thread(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&ending.thread, NULL, wait_for_signal, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

pp_status pp_ending_begin(void (*act)(void *context), void *context)
{
    ending.act = act;
    ending.context = context;
    ending.signalled = false;
    sem_init(&ending.wake, 0, 0);
    const int error = start_thread();
    if (error) {
        sem_destroy(&ending.wake);
        return pp_fail(PP_NOMEM, "cannot start a thread: %s", strerror(error));
    }
    const pp_status status = pp_catch_signals(on_signal, SA_RESTART);
    if (status == PP_OK) return PP_OK;
    const pp_status ended = pp_ending_end();
    return ended == PP_OK ? status : ended;
}

pp_status pp_ending_end(void)
{
    pp_status status = pp_catch_signals(at_once, 0);
    sem_post(&ending.wake);
    pthread_join(ending.thread, NULL);
    sem_destroy(&ending.wake);
    return status;
}
