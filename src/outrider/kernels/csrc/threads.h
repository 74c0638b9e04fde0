/* Dynamic sharing of tasks over the OpenMP pool that torch already runs, through libgomp's C interface.
 *
 * The compiler's own -fopenmp is not used: gcc and clang would bring different runtimes, and two pools in one process
 * fight for the cores. libgomp, libiomp5 and libomp all export GOMP_parallel; build.py links the one that is loaded.
 */
#ifndef OUTRIDER_THREADS_H
#define OUTRIDER_THREADS_H

#include <stdint.h>

extern void GOMP_parallel(void (*body)(void *), void *data, unsigned num_threads, unsigned flags);

typedef void (*Task)(void *context, int64_t index);

typedef struct {
    Task task;
    void *context;
    int64_t count;
    int64_t next; /* atomic */
} Sharing;

static void share(void *data) {
    Sharing *sharing = data;
    for (;;) {
        int64_t index = __atomic_fetch_add(&sharing->next, 1, __ATOMIC_RELAXED);
        if (index >= sharing->count) return;
        sharing->task(sharing->context, index);
    }
}

/* Runs task(context, 0 .. count - 1), each once, on up to num_threads threads; returns when all are done.
 * A task must not depend on which thread runs it nor on the order. */
static void run_tasks(Task task, void *context, int64_t count, int num_threads) {
    Sharing sharing = {task, context, count, 0};
    if (num_threads > count) num_threads = (int)count;
    if (num_threads <= 1) share(&sharing);
    else GOMP_parallel(share, &sharing, (unsigned)num_threads, 0);
}

#endif
