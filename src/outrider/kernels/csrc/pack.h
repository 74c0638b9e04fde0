/* Activations made ready for the tiles: widened to fp32 (exact), or for int8 weights rounded to int16 with one scale per
 * row; ordered as the weights' vectors come, padded with zeros to whole steps, and interleaved so that a tile reads one
 * unbroken stream. */
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

/* The largest activation such that no sum of products can leave 32 bits: |weight| <= 127, K of them. As quantize.py. */
INLINE int32_t int16_levels(int64_t size) { return (int32_t)min64(32767, INT32_MAX / (127 * size)); }

/* The largest |x| of a row; of any NaN or infinity, a NaN. Compared as bits, which sort like the numbers they stand for. */
static float largest(const void *x, int x_type, int64_t size) {
    uint32_t most = 0;
    float result;
    if (x_type == BF16) {
        for (int64_t i = 0; i < size; i++) {
            uint32_t word = (uint32_t)(((const uint16_t *)x)[i] & 0x7fff) << 16;
            most = word > most ? word : most;
        }
    } else {
        for (int64_t i = 0; i < size; i++) {
            uint32_t word = ((const uint32_t *)x)[i] & 0x7fffffff;
            most = word > most ? word : most;
        }
    }
    if (most >= 0x7f800000) most = 0x7fc00000;
    memcpy(&result, &most, sizeof result);
    return result;
}

/* Nearest whole number, ties to even, of |value| <= 32767: beyond 2^23 floats have no fraction. */
INLINE int16_t nearest(float value) { return (int16_t)(int32_t)((value + 12582912.f) - 12582912.f); }

INLINE void int16_steps(const void *x, int x_type, int64_t size, float factor, int64_t stride, int16_t *out) {
    const int64_t full = size / STEP;
    for (int64_t s = 0; s < full; s++)
        for (int i = 0; i < STEP; i++) out[s * stride + i] = nearest(element(x, x_type, s * STEP + i) * factor);
    if (full * STEP == size) return;
    memset(out + full * stride, 0, STEP * sizeof *out);
    for (int64_t k = full * STEP; k < size; k++)
        out[full * stride + k - full * STEP] = nearest(element(x, x_type, k) * factor);
}

/* One row as int16 numbers times the scale that is returned; a row with NaN or infinity has the scale NaN. */
static float quantize_row(const void *x, int x_type, int64_t size, int64_t stride, int16_t *out) {
    const float most = largest(x, x_type, size), levels = (float)int16_levels(size);
    const float factor = levels / most;
    if (!(most > 0) || factor > 3.4e38f) { /* zeros, a NaN, or too small to divide by */
        for (int64_t s = 0; s < ceil_div(size, STEP); s++) memset(out + s * stride, 0, STEP * sizeof *out);
        return most == most ? 0 : most;
    }
    if (x_type == BF16) int16_steps(x, BF16, size, factor, stride, out);
    else int16_steps(x, FP32, size, factor, stride, out);
    return most / levels;
}

static void pack_int16(const Work *work, int64_t first, int64_t c) {
    int16_t *out = (int16_t *)work->packed + first * work->steps * STEP;
    const int64_t row_bytes = work->linear->size * element_size(work->x_type);
    for (int64_t row = 0; row < c; row++)
        work->x_scale[first + row] = quantize_row(work->x + (first + row) * row_bytes, work->x_type,
                                                  work->linear->size, c * STEP, out + row * STEP);
}

static void pack_block(void *context, int64_t block) {
    const Work *work = context;
    const Linear *linear = work->linear;
    int64_t first = block * MAX_C, c = min64(MAX_C, work->rows - first);
    if (linear->weight_type == INT8) {
        pack_int16(work, first, c);
        return;
    }
    float *out = (float *)work->packed + first * work->steps * STEP;
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
