/* Root mean square normalisation (Zhang and Sennrich 2019, equation 4) of one row, its sum in a fixed order. */
#ifndef OUTRIDER_NORM_H
#define OUTRIDER_NORM_H

#include "simd.h"

#include <math.h>

INLINE float sum_of_squares(const float *x, int64_t size) {
    vf a = vf_zero(), b = vf_zero();
    int64_t i = 0;
    for (; i + 2 * VL <= size; i += 2 * VL) {
        vf first = vf_load(x + i), second = vf_load(x + i + VL);
        a = vf_fma(first, first, a);
        b = vf_fma(second, second, b);
    }
    float sum = vf_sum(vf_add(a, b));
    for (; i < size; i++) sum += x[i] * x[i];
    return sum;
}

/* out may be x. */
INLINE void rms_norm(const float *x, const float *weight, int64_t size, float epsilon, float *out) {
    const float factor = 1.f / sqrtf(sum_of_squares(x, size) / (float)size + epsilon);
    for (int64_t i = 0; i < size; i++) out[i] = x[i] * factor * weight[i];
}

#endif
