/* What the machine can do at best, to stand beside what the product takes: bytes read and multiply-adds, per second. */
#include "simd.h"
#include "threads.h"

enum { CHAINS = 12, ROUNDS = 1 << 20 }; /* independent sums, enough to hide the latency of a multiply-add */

typedef struct {
    const float *data;
    int64_t count, part;
    float sums[64];
} Probe;

static void read_task(void *context, int64_t index) {
    Probe *probe = context;
    int64_t start = index * probe->part, end = start + probe->part;
    vf a = vf_zero(), b = vf_zero(), c = vf_zero(), d = vf_zero();
    if (end > probe->count) end = probe->count;
    for (int64_t i = start; i + 4 * VL <= end; i += 4 * VL) {
        a = vf_add(a, vf_load(probe->data + i));
        b = vf_add(b, vf_load(probe->data + i + VL));
        c = vf_add(c, vf_load(probe->data + i + 2 * VL));
        d = vf_add(d, vf_load(probe->data + i + 3 * VL));
    }
    probe->sums[index] = vf_sum(vf_add(vf_add(a, b), vf_add(c, d)));
}

static void multiply_task(void *context, int64_t index) {
    Probe *probe = context;
    vf sums[CHAINS], x = vf_set(.999f), y = vf_set(.001f);
    for (int i = 0; i < CHAINS; i++) sums[i] = vf_set((float)i);
    for (int64_t round = 0; round < ROUNDS; round++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) sums[i] = vf_fma(sums[i], x, y);
    for (int i = 1; i < CHAINS; i++) sums[0] = vf_add(sums[0], sums[i]);
    probe->sums[index] = vf_sum(sums[0]);
}

static float total(Probe *probe, int count) {
    float sum = 0;
    for (int i = 0; i < count; i++) sum += probe->sums[i];
    return sum;
}

/* Reads count floats once, in num_threads (at most 64) equal parts; the result only keeps the compiler honest. */
float outrider_read(const float *data, int64_t count, int32_t num_threads) {
    Probe probe = {data, count, (count + num_threads - 1) / num_threads, {0}};
    run_tasks(read_task, &probe, num_threads, num_threads);
    return total(&probe, num_threads);
}

/* Does outrider_multiply_work() floating point operations in registers on each of num_threads (at most 64) threads. */
float outrider_multiply(int32_t num_threads) {
    Probe probe = {0, 0, 0, {0}};
    run_tasks(multiply_task, &probe, num_threads, num_threads);
    return total(&probe, num_threads);
}

int64_t outrider_multiply_work(void) { return (int64_t)2 * VL * CHAINS * ROUNDS; }
