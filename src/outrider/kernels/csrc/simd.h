/* One vector of floats, `vf` of VL lanes, on AVX-512, AVX2, NEON, or plain C, and the exact conversions around it.
 *
 * vf_max and vf_min return b where a or b is a NaN. vf_power2 returns 2^n for a = n + 1.5 * 2^23, n whole and within
 * -126 .. 127. Everything above this file is written once in terms of them. Compile with -ffp-contract=off: a product is fused into a
 * sum only where vf_fma says so, hence every kernel variant rounds alike.
 */
#ifndef OUTRIDER_SIMD_H
#define OUTRIDER_SIMD_H

#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#include <immintrin.h>
enum { VL = 16 };
typedef __m512 vf;
INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
INLINE vf vf_set(float value) { return _mm512_set1_ps(value); }
INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf sum) { return _mm512_fmadd_ps(a, b, sum); }
INLINE vf vf_power2(vf a) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(a), 23), _mm512_set1_epi32(0x3f800000)));
}
INLINE vf bf16_even(const uint16_t *p) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16)); }
INLINE vf bf16_odd(const uint16_t *p) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32((int)0xffff0000u)));
}
#if defined(__AVX512BW__)
#define VI_OWN
typedef __m512i vi;
INLINE vi vi_zero(void) { return _mm512_setzero_si512(); }
INLINE vi vi_load(const int16_t *p) { return _mm512_loadu_si512(p); }
INLINE vi vi_widen(const int8_t *p) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p)); }
#if defined(__AVX512VNNI__)
INLINE vi vi_dot(vi a, vi b, vi sum) { return _mm512_dpwssd_epi32(sum, a, b); }
#else
INLINE vi vi_dot(vi a, vi b, vi sum) { return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b)); }
#endif
#endif

#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
enum { VL = 8 };
typedef __m256 vf;
INLINE vf vf_zero(void) { return _mm256_setzero_ps(); }
INLINE vf vf_set(float value) { return _mm256_set1_ps(value); }
INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void vf_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf sum) { return _mm256_fmadd_ps(a, b, sum); }
INLINE vf vf_power2(vf a) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(a), 23), _mm256_set1_epi32(0x3f800000)));
}
INLINE vf bf16_even(const uint16_t *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)p), 16));
}
static const uint32_t odd_mask[8] __attribute__((aligned(32))) = {0xffff0000u, 0xffff0000u, 0xffff0000u, 0xffff0000u,
                                                                  0xffff0000u, 0xffff0000u, 0xffff0000u, 0xffff0000u};
INLINE vf bf16_odd(const uint16_t *p) { /* the mask stays in memory: a tile needs all sixteen registers */
    const uint32_t *mask = odd_mask;
    __asm__("" : "+r"(mask));
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256((const __m256i *)p), *(const __m256i *)mask));
}
#define VI_OWN
typedef __m256i vi;
INLINE vi vi_zero(void) { return _mm256_setzero_si256(); }
INLINE vi vi_load(const int16_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE vi vi_widen(const int8_t *p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)); }
INLINE vi vi_dot(vi a, vi b, vi sum) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }

#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
enum { VL = 4 };
typedef float32x4_t vf;
INLINE vf vf_zero(void) { return vdupq_n_f32(0); }
INLINE vf vf_set(float value) { return vdupq_n_f32(value); }
INLINE vf vf_load(const float *p) { return vld1q_f32(p); }
INLINE void vf_store(float *p, vf a) { vst1q_f32(p, a); }
INLINE vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
INLINE vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
INLINE vf vf_div(vf a, vf b) { return vdivq_f32(a, b); }
INLINE vf vf_max(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
INLINE vf vf_min(vf a, vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
INLINE vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
INLINE vf vf_fma(vf a, vf b, vf sum) { return vfmaq_f32(sum, a, b); }
INLINE vf vf_power2(vf a) {
    return vreinterpretq_f32_u32(vaddq_u32(vshlq_n_u32(vreinterpretq_u32_f32(a), 23), vdupq_n_u32(0x3f800000)));
}
INLINE vf bf16_even(const uint16_t *p) {
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u16(vld1q_u16(p)), 16));
}
INLINE vf bf16_odd(const uint16_t *p) {
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u16(vld1q_u16(p)), vdupq_n_u32(0xffff0000u)));
}

#else /* GCC's and clang's vector extension: the compiler lowers it to whatever there is */
enum { VL = 4 };
typedef float vf __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));
INLINE vf vf_zero(void) { return (vf){0, 0, 0, 0}; }
INLINE vf vf_set(float value) { return (vf){value, value, value, value}; }
INLINE vf vf_load(const float *p) { vf a; memcpy(&a, p, sizeof a); return a; }
INLINE void vf_store(float *p, vf a) { memcpy(p, &a, sizeof a); }
INLINE vf vf_add(vf a, vf b) { return a + b; }
INLINE vf vf_sub(vf a, vf b) { return a - b; }
INLINE vf vf_div(vf a, vf b) { return a / b; }
INLINE vf vf_max(vf a, vf b) { return (vf)(((vu)a & (vu)(a > b)) | ((vu)b & ~(vu)(a > b))); }
INLINE vf vf_min(vf a, vf b) { return (vf)(((vu)a & (vu)(a < b)) | ((vu)b & ~(vu)(a < b))); }
INLINE vf vf_power2(vf a) { return (vf)(((vu)a << 23) + 0x3f800000u); }
INLINE vf vf_mul(vf a, vf b) { return a * b; }
INLINE vf vf_fma(vf a, vf b, vf sum) { return sum + a * b; }
INLINE vf bf16_even(const uint16_t *p) { /* little endian, as all of the above */
    vu words;
    memcpy(&words, p, sizeof words);
    return (vf)(words << 16);
}
INLINE vf bf16_odd(const uint16_t *p) {
    vu words;
    memcpy(&words, p, sizeof words);
    return (vf)(words & 0xffff0000u);
}
#endif

/* `vi`: 2 * VL int16 numbers, or VL int32 sums of them. vi_dot adds the products of neighbours, two by two; exact. */
#if !defined(VI_OWN)
typedef struct { int16_t pairs[2 * VL]; int32_t sums[VL]; } vi; /* one half of it is in use; compilers make vectors of it */
INLINE vi vi_zero(void) { return (vi){{0}, {0}}; }
INLINE vi vi_load(const int16_t *p) {
    vi a;
    memcpy(a.pairs, p, sizeof a.pairs);
    return a;
}
INLINE vi vi_widen(const int8_t *p) {
    vi a;
    for (int i = 0; i < 2 * VL; i++) a.pairs[i] = p[i];
    return a;
}
INLINE vi vi_dot(vi a, vi b, vi sum) {
    for (int i = 0; i < VL; i++)
        sum.sums[i] += a.pairs[2 * i] * b.pairs[2 * i] + a.pairs[2 * i + 1] * b.pairs[2 * i + 1];
    return sum;
}
INLINE void vi_store(int32_t *p, vi a) { memcpy(p, a.sums, sizeof a.sums); }
#else
INLINE void vi_store(int32_t *p, vi a) { memcpy(p, &a, sizeof a); }
#endif

/* Sum of the lanes, always by halves: lane i with lane i + width / 2. */
INLINE float vf_sum(vf a) {
    float lanes[VL];
    vf_store(lanes, a);
    for (int width = VL / 2; width; width /= 2)
        for (int i = 0; i < width; i++) lanes[i] += lanes[i + width];
    return lanes[0];
}

INLINE int32_t vi_sum(vi a) {
    int32_t lanes[VL], sum = 0;
    vi_store(lanes, a);
    for (int i = 0; i < VL; i++) sum += lanes[i];
    return sum;
}

/* out[i] = sum of the lanes of the i-th vector: four at once, and each the same whatever the other three are. */
#if defined(__AVX2__) && defined(__FMA__)
INLINE __m128 half_sum(vf a) {
#if defined(__AVX512F__)
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1)));
    return _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
#else
    return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
#endif
}
INLINE void vf_sum4(vf a, vf b, vf c, vf d, float *out) {
    __m128 e = half_sum(a), f = half_sum(b), g = half_sum(c), h = half_sum(d);
    __m128 ef = _mm_add_ps(_mm_unpacklo_ps(e, f), _mm_unpackhi_ps(e, f)); /* e0+e2, f0+f2, e1+e3, f1+f3 */
    __m128 gh = _mm_add_ps(_mm_unpacklo_ps(g, h), _mm_unpackhi_ps(g, h));
    _mm_storeu_ps(out, _mm_add_ps(_mm_movelh_ps(ef, gh), _mm_movehl_ps(gh, ef)));
}
#else
INLINE void vf_sum4(vf a, vf b, vf c, vf d, float *out) {
    out[0] = vf_sum(a), out[1] = vf_sum(b), out[2] = vf_sum(c), out[3] = vf_sum(d);
}
#endif

INLINE float bf16_to_float(uint16_t value) {
    uint32_t word = (uint32_t)value << 16;
    float result;
    memcpy(&result, &word, sizeof result);
    return result;
}

/* Round to nearest, ties to even; a NaN stays a (quiet) NaN. */
INLINE uint16_t float_to_bf16(float value) {
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    if (value != value) return (uint16_t)((word >> 16) | 0x40);
    return (uint16_t)((word + 0x7fff + ((word >> 16) & 1)) >> 16);
}

#endif
