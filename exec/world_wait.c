/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting and stopping. A bell is a futex: the counter moves with each ring, so a ring between looking and sleeping is
 * not lost.
 */
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "exec/signals.h"
#include "exec/transport.h"

enum {
    LINGER_NS = 20000000,     /* while nobody else wants the core: sleeping would cost less than 1 % of such a wait */
    SPIN_NS = 200000,         /* else; threads: longer than most waits between two cores, far below a step */
    SPIN_REMOTE_NS = 1000000, /* processes, devices: they can not ring, so waking up late costs more */
    YIELD_NS = 50000,         /* crowded, processes: let the others run first, then sleep */
    YIELD_NEAR_NS = 2000000,  /* crowded, threads: the same; what they wait for comes from those others */
    NAP_MIN_NS = 20000,
    NAP_MAX_NS = 200000, /* processes: a sixteenth of the time waited so far, in these limits */
    NAP_POLL_NS = 50000, /* devices: the same, but never longer than this */
    DOZE_NS = 30000,     /* processes of devices that wait, for each worker: so many must not keep the cores busy */
    LOOK_NS = 3000,      /* devices: from one look to the next. A look takes a lock that launches need, too */
    SPIN_END_NS = 20000, /* before a time, where cores are free: less than waking up takes */
    CHECK_NS = 100000000 /* threads: how often a sleeper looks for a signal */
};

static struct pp_bell *bell_of(struct pp_world *world, int worker) { return &world->bells[worker - world->first]; }

unsigned pp_bell_seen(struct pp_world *world, int me) { return atomic_load(&bell_of(world, me)->count); }

static void futex(atomic_uint *word, int operation, unsigned value, const struct timespec *timeout)
{
    syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

void pp_bell_ring(struct pp_world *world, int worker)
{
    struct pp_bell *bell = bell_of(world, worker);
    atomic_fetch_add(&bell->count, 1);
    if (atomic_load(&bell->sleeping)) futex(&bell->count, FUTEX_WAKE, INT_MAX, NULL);
}

static void sleep_until_rung(struct pp_bell *bell, unsigned seen, int64_t ns)
{
    struct timespec timeout = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    atomic_store(&bell->sleeping, 1);
    if (atomic_load(&bell->count) == seen) futex(&bell->count, FUTEX_WAIT, seen, &timeout);
    atomic_store(&bell->sleeping, 0);
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Between two looks of a worker that spins. */
static void spin(const struct pp_world *world, const struct pp_bell *bell, unsigned seen, int64_t now)
{
    relax();
    while (world->polled && atomic_load(&bell->count) == seen && pp_now_ns() - now < LOOK_NS) relax();
}

static int64_t longest_nap(const struct pp_world *world)
{
    int64_t doze = world->dozes ? (int64_t)DOZE_NS * world->count : 0;
    return doze > NAP_MAX_NS ? doze : NAP_MAX_NS;
}

static int64_t involuntary_switches(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

/* How long a worker spins before it sleeps. Devices that wait instead of computing leave the cores alone. */
static int64_t spinning_ns(const struct pp_world *world, struct pp_linger *linger, int64_t now)
{
    if (world->crowded) return 0;
    if (!world->dozes && pp_linger_is_due(linger, now)) pp_linger_look(linger, now, involuntary_switches());
    if (!world->dozes && pp_linger_allowed(linger, now)) return LINGER_NS;
    return world->remote || world->polled ? SPIN_REMOTE_NS : SPIN_NS;
}

/* ... and how long it lets others run first. */
static int64_t yielding_ns(const struct pp_world *world)
{
    if (world->remote || world->polled) return YIELD_NS;
    return world->crowded && !world->dozes ? YIELD_NEAR_NS : 0;
}

void pp_world_wait(struct pp_world *world, int me, unsigned seen, int64_t *idle_since)
{
    struct pp_bell *bell = bell_of(world, me);
    int64_t now = pp_now_ns();
    if (*idle_since == 0) *idle_since = now;
    int64_t idle = now - *idle_since;
    if (idle < spinning_ns(world, &bell->linger, now)) {
        spin(world, bell, seen, now);
    } else if (idle < yielding_ns(world)) {
        sched_yield();
    } else if (!world->remote && !world->polled) {
        sleep_until_rung(bell, seen, CHECK_NS);
    } else {
        int64_t nap = idle / 16, longest = world->polled ? NAP_POLL_NS : longest_nap(world);
        sleep_until_rung(bell, seen, nap < NAP_MIN_NS ? NAP_MIN_NS : nap > longest ? longest : nap);
    }
}

pp_status pp_world_await(struct pp_world *world, int me, pp_world_look *look, void *at)
{
    bool done = false;
    for (int64_t idle_since = 0;;) {
        const unsigned seen = pp_bell_seen(world, me);
        PP_TRY(look(world, at, &done));
        if (done) return PP_OK;
        PP_TRY(pp_world_check(world));
        pp_world_wait(world, me, seen, &idle_since);
    }
}

void pp_world_sleep(struct pp_world *world, int me, unsigned seen, int64_t until_ns)
{
    int64_t left = until_ns - pp_now_ns(), longest = world->remote ? longest_nap(world) : CHECK_NS;
    if (left <= 0) return;
    if (!world->crowded && left < SPIN_END_NS)
        relax();
    else
        sleep_until_rung(bell_of(world, me), seen, left < longest ? left : longest);
}

static pthread_mutex_t telling = PTHREAD_MUTEX_INITIALIZER; /* guards the message of a world */

/* Is this failure the one to tell, after one with another message? A signal comes to all workers alike, so of these
 * the first tells that knows more than that it came. */
static bool tells_more(const struct pp_world *world, pp_status why, bool signal_alone)
{
    if (atomic_load(&world->stop) == PP_OK) return true;
    return world->signal_alone && why == PP_INTERRUPTED && !signal_alone;
}

void pp_world_stop(struct pp_world *world, pp_status why)
{
    const bool signal_alone = why == PP_INTERRUPTED && strcmp(pp_message(), PP_BY_SIGNAL) == 0;
    pthread_mutex_lock(&telling);
    if (tells_more(world, why, signal_alone)) {
        world->signal_alone = signal_alone;
        snprintf(world->message, sizeof world->message, "%s", pp_message());
        atomic_store(&world->stop, (int)why);
    }
    pthread_mutex_unlock(&telling);
    for (int i = 0; i < world->count; i++) pp_bell_ring(world, world->first + i);
}

pp_status pp_world_failure(const struct pp_world *world)
{
    pthread_mutex_lock(&telling);
    const pp_status why = (pp_status)atomic_load(&world->stop),
                    told = why == PP_OK ? why : pp_fail(why, "%s", world->message);
    pthread_mutex_unlock(&telling);
    return told;
}

pp_status pp_world_check(struct pp_world *world)
{
    if (pp_signals_caught()) return pp_fail(PP_INTERRUPTED, PP_BY_SIGNAL);
    if (atomic_load_explicit(&world->stop, memory_order_relaxed) != PP_OK)
        return pp_fail(PP_PEER, "another worker of this process failed");
    return PP_OK;
}
