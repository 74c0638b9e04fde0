/* exp and the gated activations, element by element: a value's bits depend on that value alone.
 *
 * exp: 2^n * p(r), n whole, |r| <= ln(2) / 2, p of degree 6 fitted here to the relative error; within 2 units in the last
 * place for -87 <= x <= 88 and held at these ends beyond (so it is never 0 and never infinite). A NaN stays one.
 */
#ifndef OUTRIDER_ACTIVATION_H
#define OUTRIDER_ACTIVATION_H

#include "simd.h"

enum { SILU = 0, GELU_TANH = 1 }; /* as in decoder.py */

INLINE vf vf_exp(vf x) {
    const vf magic = vf_set(12582912.f); /* 1.5 * 2^23: added, it rounds to a whole number */
    x = vf_max(vf_set(-87.f), vf_min(vf_set(88.f), x));
    vf t = vf_fma(x, vf_set(1.44269504f), magic), n = vf_sub(t, magic);
    vf r = vf_fma(n, vf_set(-0.693145752f), x); /* ln(2) in two parts, the first short enough for an exact product */
    r = vf_fma(n, vf_set(-1.42860677e-6f), r);
    vf p = vf_set(1.38145406e-3f);
    p = vf_fma(p, r, vf_set(8.36874545e-3f));
    p = vf_fma(p, r, vf_set(4.16683890e-2f));
    p = vf_fma(p, r, vf_set(1.66665211e-1f));
    p = vf_fma(p, r, vf_set(4.99999940e-1f));
    p = vf_fma(p, r, vf_set(1.f));
    p = vf_fma(p, r, vf_set(1.f));
    return vf_mul(p, vf_power2(t));
}

/* x * sigmoid(y) */
INLINE vf vf_gate(vf x, vf y) { return vf_div(x, vf_add(vf_set(1.f), vf_exp(vf_sub(vf_zero(), y)))); }

INLINE vf vf_activation(int kind, vf x) {
    if (kind == SILU) return vf_gate(x, x);
    /* 0.5 x (1 + tanh u) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
    vf cubic = vf_fma(vf_mul(x, x), vf_set(0.044715f), vf_set(1.f));
    return vf_gate(x, vf_mul(vf_mul(x, vf_set(1.59576912f)), cubic));
}

/* gate[i] = activation(gate[i]) * up[i] */
INLINE void activate(int kind, float *gate, const float *up, int64_t size) {
    int64_t i = 0;
    for (; i + VL <= size; i += VL)
        vf_store(gate + i, vf_mul(vf_activation(kind, vf_load(gate + i)), vf_load(up + i)));
    if (i == size) return;
    float tail[VL] = {0};
    memcpy(tail, gate + i, (size_t)(size - i) * sizeof(float));
    vf_store(tail, vf_activation(kind, vf_load(tail)));
    for (int lane = 0; i < size; i++, lane++) gate[i] = tail[lane] * up[i];
}

#endif
