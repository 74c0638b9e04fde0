/* Rotary position embedding (Su et al. 2021, equation 34) in the half-split order of the Hugging Face models. */
#ifndef OUTRIDER_ROPE_H
#define OUTRIDER_ROPE_H

#include "simd.h"

/* table: cosines (size), then sines (size) of one position. out may be x; every number is multiplied by scale. */
INLINE void rotate(const float *x, const float *table, int64_t size, float scale, float *out) {
    const float *cosine = table, *sine = table + size;
    const int64_t half = size / 2;
    for (int64_t i = 0; i < half; i++) {
        float a = x[i], b = x[half + i];
        out[i] = (a * cosine[i] - b * sine[i]) * scale;
        out[half + i] = (b * cosine[half + i] + a * sine[half + i]) * scale;
    }
}

#endif
