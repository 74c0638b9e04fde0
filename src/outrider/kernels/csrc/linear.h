/* What the files of the matrix product share: its operands and its sizes. */
#ifndef OUTRIDER_LINEAR_H
#define OUTRIDER_LINEAR_H

#include "simd.h"

enum { BF16 = 0, FP32 = 1, INT8 = 2 }; /* as in library.py */
enum { STEP = 2 * VL };                /* k advances by two vectors: bf16 is widened as even and odd halves of a load */
enum { MAX_C = 4, MAX_R = 4 };         /* the largest tile: activation rows, weight rows */

typedef struct { /* mirrored by library.py */
    const void *weight; /* (N, K) contiguous: bf16, fp32, or int8 */
    const float *scale; /* (N,) for int8, else NULL */
    const void *bias;   /* (N,) or NULL: bf16 or fp32 */
    int64_t num_outputs, size; /* N, K */
    int32_t weight_type, bias_type;
} Linear;

typedef struct { /* one call, or MAX_ROWS rows of it */
    const Linear *linear;
    const char *x; /* (M, K) contiguous: bf16 or fp32 */
    char *y;       /* (M, N) contiguous, of x's type */
    void *packed; /* x as fp32, or int16 for int8 weights: blocks of MAX_C rows (the last has fewer), (steps, C, STEP) */
    float *x_scale; /* (M,) of the int16 rows */
    int64_t rows, steps, chunk;
    int32_t x_type;
} Work;

enum { MAX_SHARED = 3 };

typedef struct { /* products that share their input, done in one region of tasks */
    const Linear *linears[MAX_SHARED]; /* of one size */
    void *y[MAX_SHARED];               /* (M, N of each) contiguous, of x's type */
    const void *x;                     /* (M, K) contiguous: bf16 or fp32 */
    int64_t rows;
    int32_t count, x_type, num_threads;
} Products;

/* Returns 0, or -1 when there is no memory to pack x. */
int outrider_products(const Products *products);

INLINE int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
INLINE int element_size(int type) { return type == BF16 ? 2 : type == FP32 ? 4 : 1; }
INLINE int packed_size(int weight_type) { return weight_type == INT8 ? 2 : 4; }
INLINE float element(const void *x, int type, int64_t i) {
    return type == BF16 ? bf16_to_float(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

#endif
