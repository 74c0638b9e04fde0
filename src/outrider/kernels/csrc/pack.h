/* Activations made ready for the tiles: widened to fp32 (exact), ordered as the weights' vectors come, padded with zeros
 * to whole steps, and interleaved so that a tile reads one unbroken stream. */
#ifndef OUTRIDER_PACK_H
#define OUTRIDER_PACK_H

#include "linear.h"

/* Where element i of a step lies: bf16 weights are widened as even elements, then odd ones. */
INLINE int lane_of(int weight_type, int i) { return weight_type == BF16 ? (i & 1) * VL + i / 2 : i; }

INLINE void pack_step(const void *x, int x_type, int weight_type, int64_t k, int count, float *out) {
    if (count < STEP) memset(out, 0, STEP * sizeof(float));
    else if (x_type == BF16 && weight_type == BF16) {
        vf_store(out, bf16_even((const uint16_t *)x + k));
        vf_store(out + VL, bf16_odd((const uint16_t *)x + k));
        return;
    }
    for (int i = 0; i < count; i++) out[lane_of(weight_type, i)] = element(x, x_type, k + i);
}

static void pack_block(void *context, int64_t block) {
    const Work *work = context;
    const Linear *linear = work->linear;
    int64_t first = block * MAX_C, c = min64(MAX_C, work->rows - first);
    float *out = work->packed + first * work->steps * STEP;
    for (int64_t row = 0; row < c; row++) {
        const void *x = work->x + (first + row) * linear->size * element_size(work->x_type);
        for (int64_t s = 0; s < work->steps; s++) {
            int count = (int)min64(STEP, linear->size - s * STEP);
            float *step = out + (s * c + row) * STEP;
            if (work->x_type == BF16 && linear->weight_type == BF16) pack_step(x, BF16, BF16, s * STEP, count, step);
            else if (linear->weight_type == BF16) pack_step(x, FP32, BF16, s * STEP, count, step);
            else if (work->x_type == BF16) pack_step(x, BF16, FP32, s * STEP, count, step);
            else pack_step(x, FP32, FP32, s * STEP, count, step);
        }
    }
}

#endif
