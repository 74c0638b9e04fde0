/* The tile: R weight rows against C activation rows over all of k, every accumulator in a register.
 *
 * A tile's size changes nothing in its sums: each has one vector accumulator, fed in the order of k, folded by halves.
 */
#ifndef OUTRIDER_TILE_H
#define OUTRIDER_TILE_H

#include "linear.h"

enum { AHEAD_LINES = 2 }; /* per step */
enum { INT_STEPS = 4 };   /* of int8 weights at once: their steps are too short to ask for more each time */

/* What a tile asks for while it computes: weights that the next group will read, line by line. */
typedef struct {
    const char *next, *end;
} Ahead;

INLINE vf weights(const char *p, int type, int half) { /* lanes of the step's first or second half */
    if (type == BF16) return half ? bf16_odd((const uint16_t *)p) : bf16_even((const uint16_t *)p);
    return vf_load((const float *)p + half * VL);
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

/* Weight rows on which a step runs past the end: padded with zeros, so that nothing beyond the row is read. */
typedef struct {
    char bytes[MAX_R][STEP * 4];
    const char *rows[MAX_R];
} Tail;

INLINE void fill_tail(Tail *tail, int R, const char *const *w, int64_t offset, int64_t num_bytes) {
    memset(tail->bytes, 0, sizeof tail->bytes);
    for (int r = 0; r < R; r++) {
        memcpy(tail->bytes[r], w[r] + offset, (size_t)num_bytes);
        tail->rows[r] = tail->bytes[r];
    }
}

INLINE void fetch(Ahead *ahead, int lines) {
    for (int i = 0; i < lines && ahead->next < ahead->end; i++, ahead->next += 64)
        __builtin_prefetch(ahead->next, 0, 2);
}

INLINE void tile(int type, int R, int C, const Linear *linear, int64_t n, const void *packed, Ahead ahead,
                 float out[MAX_R][MAX_C]) {
    const int size = element_size(type);
    const float *x = packed;
    const int64_t full = linear->size / STEP, tail = linear->size - full * STEP;
    vf sums[MAX_R][MAX_C];
    const char *w[MAX_R];
    for (int r = 0; r < R; r++) {
        w[r] = (const char *)linear->weight + (n + r) * linear->size * size;
        for (int c = 0; c < C; c++) sums[r][c] = vf_zero();
    }
    for (int64_t s = 0; s < full; s++) {
        fetch(&ahead, AHEAD_LINES);
        tile_step(type, R, C, w, s * STEP * size, x + s * C * STEP, sums);
    }
    if (tail) {
        Tail last;
        fill_tail(&last, R, w, full * STEP * size, tail * size);
        tile_step(type, R, C, last.rows, 0, x + full * C * STEP, sums);
    }
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) out[r][c] = vf_sum(sums[r][c]);
}

/* int8 weights, int16 activations: sums are whole numbers, so their order could not matter even if it changed. */
INLINE void int_step(int R, int C, const char *const *w, int64_t offset, const int16_t *x, vi sums[MAX_R][MAX_C]) {
    vi a[MAX_R];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) a[r] = vi_widen((const int8_t *)w[r] + offset);
#pragma GCC unroll 8
    for (int c = 0; c < C; c++) {
        vi b = vi_load(x + c * STEP);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) sums[r][c] = vi_dot(a[r], b, sums[r][c]);
    }
}

INLINE void int_tile(int R, int C, const Linear *linear, int64_t n, const void *packed, Ahead ahead,
                     float out[MAX_R][MAX_C]) {
    const int64_t full = linear->size / STEP, tail = linear->size - full * STEP;
    const int16_t *x = packed;
    vi sums[MAX_R][MAX_C];
    const char *w[MAX_R];
    for (int r = 0; r < R; r++) {
        w[r] = (const char *)linear->weight + (n + r) * linear->size;
        for (int c = 0; c < C; c++) sums[r][c] = vi_zero();
    }
    int64_t s = 0;
    for (; s + INT_STEPS <= full; s += INT_STEPS) {
        fetch(&ahead, R);
#pragma GCC unroll 4
        for (int i = 0; i < INT_STEPS; i++) int_step(R, C, w, (s + i) * STEP, x + (s + i) * C * STEP, sums);
    }
    for (; s < full; s++) int_step(R, C, w, s * STEP, x + s * C * STEP, sums);
    if (tail) {
        Tail last;
        fill_tail(&last, R, w, full * STEP, tail);
        int_step(R, C, last.rows, 0, x + full * C * STEP, sums);
    }
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) out[r][c] = (float)vi_sum(sums[r][c]);
}

typedef void (*Tile)(const Linear *, int64_t, const void *, Ahead, float[MAX_R][MAX_C]);

#define TILE(type, R, C)                                                                                         \
    static void tile_##type##_##R##_##C(const Linear *linear, int64_t n, const void *x, Ahead ahead,             \
                                        float out[MAX_R][MAX_C]) {                                               \
        if (type == INT8) int_tile(R, C, linear, n, x, ahead, out);                                              \
        else tile(type, R, C, linear, n, x, ahead, out);                                                         \
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
