/* The tile: R weight rows against C activation rows over all of k, every accumulator in a register.
 *
 * A tile's size changes nothing in its sums: each has one vector accumulator, fed in the order of k, folded by halves.
 */
#ifndef OUTRIDER_TILE_H
#define OUTRIDER_TILE_H

#include "linear.h"

enum { AHEAD_LINES = 2 }; /* per step */

/* What a tile asks for while it computes: weights that the next group will read, line by line. */
typedef struct {
    const char *next, *end;
} Ahead;

INLINE vf weights(const char *p, int type, int half) { /* lanes of the step's first or second half */
    if (type == BF16) return half ? bf16_odd((const uint16_t *)p) : bf16_even((const uint16_t *)p);
    if (type == FP32) return vf_load((const float *)p + half * VL);
    return vf_int8((const int8_t *)p + half * VL);
}

INLINE void tile_step(int type, int R, int C, const char *const *w, int64_t offset, const float *x,
                      vf sums[MAX_R][MAX_C]) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        vf a[MAX_R];
        /* Load again for the second half: kept in registers instead, the loads would push accumulators out of them. */
        __asm__("" : "+r"(offset));
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) a[r] = weights(w[r] + offset, type, half);
#pragma GCC unroll 8
        for (int c = 0; c < C; c++) {
            vf b = vf_load(x + c * STEP + half * VL);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) sums[r][c] = vf_fma(a[r], b, sums[r][c]);
        }
    }
}

INLINE void tile(int type, int R, int C, const Linear *linear, int64_t n, const float *x, Ahead ahead,
                 float out[MAX_R][MAX_C]) {
    const int size = element_size(type);
    const int64_t full = linear->size / STEP, tail = linear->size - full * STEP;
    vf sums[MAX_R][MAX_C];
    const char *w[MAX_R];
    for (int r = 0; r < R; r++) {
        w[r] = (const char *)linear->weight + (n + r) * linear->size * size;
        for (int c = 0; c < C; c++) sums[r][c] = vf_zero();
    }
    for (int64_t s = 0; s < full; s++) {
        for (int i = 0; i < AHEAD_LINES && ahead.next < ahead.end; i++, ahead.next += 64)
            __builtin_prefetch(ahead.next, 0, 2);
        tile_step(type, R, C, w, s * STEP * size, x + s * C * STEP, sums);
    }
    if (tail) { /* the same step on weights padded with zeros: nothing beyond the row is read */
        char last[MAX_R][STEP * 4];
        const char *padded[MAX_R];
        memset(last, 0, sizeof last);
        for (int r = 0; r < R; r++) {
            memcpy(last[r], w[r] + full * STEP * size, (size_t)(tail * size));
            padded[r] = last[r];
        }
        tile_step(type, R, C, padded, 0, x + full * C * STEP, sums);
    }
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) out[r][c] = vf_sum(sums[r][c]);
}

typedef void (*Tile)(const Linear *, int64_t, const float *, Ahead, float[MAX_R][MAX_C]);

#define TILE(type, R, C)                                                                                         \
    static void tile_##type##_##R##_##C(const Linear *linear, int64_t n, const float *x, Ahead ahead,            \
                                        float out[MAX_R][MAX_C]) {                                               \
        tile(type, R, C, linear, n, x, ahead, out);                                                              \
    }
#define TILE_ROW(type, R) TILE(type, R, 1) TILE(type, R, 2) TILE(type, R, 3) TILE(type, R, 4)
#define TILES(type) TILE_ROW(type, 1) TILE_ROW(type, 2) TILE_ROW(type, 3) TILE(type, 4, 1) TILE(type, 4, 2)
TILES(BF16)
TILES(FP32)
TILES(INT8)

#define NAME_ROW(type, R) {tile_##type##_##R##_1, tile_##type##_##R##_2, tile_##type##_##R##_3, tile_##type##_##R##_4}
#define NAMES(type) {NAME_ROW(type, 1), NAME_ROW(type, 2), NAME_ROW(type, 3), {tile_##type##_4_1, tile_##type##_4_2}}
static const Tile tiles[3][MAX_R][MAX_C] = {NAMES(BF16), NAMES(FP32), NAMES(INT8)};

#endif
