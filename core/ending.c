/* SPDX-License-Identifier: Apache-2.0 */
#include "core/ending.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>

#include "core/main.h"

static struct {
    void (*act)(void *context);
    void *context;
    pthread_t thread;
    sem_t came; /* a signal */
    _Atomic int64_t first_ns;
} ending;

static void on_signal(int number)
{
    (void)number;
    const enum pp_turn turn = pp_signal_turn(&ending.first_ns);
    if (turn == PP_TURN_FIRST) sem_post(&ending.came);
    if (turn == PP_TURN_IMPATIENT) pp_end_by_signal();
}

static void at_once(int number)
{
    (void)number;
    pp_end_by_signal();
}

static void *wait_for_signal(void *unused)
{
    int before;
    while (sem_wait(&ending.came) != 0) continue;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    ending.act(ending.context);
    pp_end_by_signal();
    return unused;
}

/* Signals are for the other threads. */
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
    sem_init(&ending.came, 0, 0);
    const int error = start_thread();
    if (error) return pp_fail(PP_NOMEM, "cannot start a thread: %s", strerror(error));
    return pp_catch_signals(on_signal, SA_RESTART);
}

pp_status pp_ending_end(void)
{
    pp_status status = pp_catch_signals(at_once, 0);
    pthread_cancel(ending.thread); /* where it waits for a signal only */
    pthread_join(ending.thread, NULL);
    sem_destroy(&ending.came);
    return status;
}
