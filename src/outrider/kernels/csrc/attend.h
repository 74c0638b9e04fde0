/* Attention of a node over its row's committed slots and its own ancestors, as if they lay one after another.
 *
 * Positions come in spans of SPAN, aligned to position 0. Per query head and span: scores, the new maximum, weights,
 * what was read so far rescaled, values added in the order of their positions (online softmax: Milakov and Gimelshein
 * 2018). Which positions are visible, and in which span each lies, is a matter of the node alone; nothing else is read,
 * neither siblings nor slots beyond. So a node's bits depend on its own path only, and a NaN elsewhere cannot reach it.
 *
 * A task is a few nodes and one key head: the group's query heads share each load of a key, the nodes share the caches.
 */
#ifndef OUTRIDER_ATTEND_H
#define OUTRIDER_ATTEND_H

#include "activation.h"
#include "decoder.h"

#include <math.h>

enum { SPAN = 32, KEYS = 4, HEADS = 3 }; /* KEYS x HEADS accumulators fill the registers of AVX2 */
enum { MAX_TILE = 8, MAX_GROUP = 32 };   /* nodes, query heads per key head: as in decoder.py */

typedef struct { /* of one node and head, so far */
    float most;      /* the largest score */
    float total[VL]; /* sum of exp(score - most), by lane */
} Softmax;

typedef struct { /* one span as one node sees it */
    const float *keys[SPAN], *values[SPAN];
    int from, to; /* visible places */
} Span;

INLINE int64_t first_visible(const Run *run, const Node *node) {
    int64_t window = run->layer->window;
    return window && node->position >= window ? node->position - window + 1 : 0;
}

INLINE void find_span(const Run *run, const Node *node, int64_t head, int64_t base, Span *span) {
    const Shape *shape = run->pass->shape;
    const Row *row = node->row;
    const int64_t stride = shape->key_heads * shape->head_size, first = first_visible(run, node);
    const float *keys = cache_slots(run, row, 0) + head * shape->head_size;
    const float *values = cache_slots(run, row, 1) + head * shape->head_size;
    span->from = (int)(first > base ? min64(first - base, SPAN) : 0);
    span->to = (int)min64(node->position + 1 - base, SPAN);
    for (int i = span->from; i < span->to; i++) {
        int64_t slot = base + i;
        if (node->way && slot >= row->length) slot = row->length + node->way[slot - row->length];
        span->keys[i] = keys + slot * stride;
        span->values[i] = values + slot * stride;
    }
    /* whole tiles of keys: the score of a place that is not visible is thrown away */
    for (int i = span->from; i % KEYS; i--) span->keys[i - 1] = span->keys[span->from];
    for (int i = span->to; i % KEYS; i++) span->keys[i] = span->keys[span->from];
}

INLINE void score_tile(int heads, const float *query, const float *const *keys, int64_t size, float scores[HEADS][SPAN]) {
    vf sums[HEADS][KEYS];
    for (int h = 0; h < heads; h++)
        for (int k = 0; k < KEYS; k++) sums[h][k] = vf_zero();
    int64_t d = 0;
    for (; d + VL <= size; d += VL) {
        vf q[HEADS];
#pragma GCC unroll 8
        for (int h = 0; h < heads; h++) q[h] = vf_load(query + h * size + d);
#pragma GCC unroll 8
        for (int k = 0; k < KEYS; k++) {
            vf key = vf_load(keys[k] + d);
#pragma GCC unroll 8
            for (int h = 0; h < heads; h++) sums[h][k] = vf_fma(q[h], key, sums[h][k]);
        }
    }
#pragma GCC unroll 8
    for (int h = 0; h < heads; h++) vf_sum4(sums[h][0], sums[h][1], sums[h][2], sums[h][3], scores[h]);
    for (; d < size; d++)
        for (int h = 0; h < heads; h++)
            for (int k = 0; k < KEYS; k++) scores[h][k] += query[h * size + d] * keys[k][d];
}

/* Scores become weights relative to the largest so far; returns what earlier weights are now to be multiplied by. */
INLINE float weigh(Softmax *softmax, float *scores, int from, int to) {
    const float before = softmax->most;
    float lanes[VL];
    for (int i = 0; i < from; i++) scores[i] = -INFINITY;
    for (int i = to; i < SPAN; i++) scores[i] = -INFINITY;
    vf most = vf_load(scores);
    for (int i = VL; i < SPAN; i += VL) most = vf_max(most, vf_load(scores + i));
    vf_store(lanes, most);
    for (int i = 0; i < VL; i++) softmax->most = lanes[i] > softmax->most ? lanes[i] : softmax->most;
    most = vf_set(softmax->most);
    for (int i = 0; i < SPAN; i += VL) vf_store(scores + i, vf_exp(vf_sub(vf_load(scores + i), most)));
    for (int i = 0; i < from; i++) scores[i] = 0;
    for (int i = to; i < SPAN; i++) scores[i] = 0;
    vf factor = before == softmax->most ? vf_set(1.f) : vf_exp(vf_sub(vf_set(before), most));
    vf total = vf_mul(vf_load(softmax->total), factor);
    for (int i = 0; i < SPAN; i += VL) total = vf_add(total, vf_load(scores + i));
    vf_store(softmax->total, total);
    vf_store(lanes, factor);
    return lanes[0];
}

INLINE void add_values(int heads, int width, float weights[HEADS][SPAN], const float *factors, const Span *span,
                       int64_t d, int64_t size, float *read) {
    vf sums[HEADS][4];
    for (int h = 0; h < heads; h++)
        for (int j = 0; j < width; j++) sums[h][j] = vf_mul(vf_load(read + h * size + d + j * VL), vf_set(factors[h]));
    for (int i = span->from; i < span->to; i++) {
        const float *value = span->values[i] + d;
        vf w[HEADS];
#pragma GCC unroll 8
        for (int h = 0; h < heads; h++) w[h] = vf_set(weights[h][i]);
#pragma GCC unroll 8
        for (int j = 0; j < width; j++) {
            vf v = vf_load(value + j * VL);
#pragma GCC unroll 8
            for (int h = 0; h < heads; h++) sums[h][j] = vf_fma(w[h], v, sums[h][j]);
        }
    }
    for (int h = 0; h < heads; h++)
        for (int j = 0; j < width; j++) vf_store(read + h * size + d + j * VL, sums[h][j]);
}

/* One span for `heads` query heads that share a key head. */
INLINE void read_span(int heads, const float *query, const Span *span, int64_t size, Softmax *softmax, float *read) {
    float weights[HEADS][SPAN], tile[HEADS][SPAN], factors[HEADS];
    for (int i = span->from / KEYS * KEYS; i < span->to; i += KEYS) {
        score_tile(heads, query, span->keys + i, size, tile);
        for (int h = 0; h < heads; h++) memcpy(weights[h] + i, tile[h], KEYS * sizeof(float));
    }
    for (int h = 0; h < heads; h++) factors[h] = weigh(&softmax[h], weights[h], span->from, span->to);
    int64_t d = 0;
    for (; d + 4 * VL <= size; d += 4 * VL) add_values(heads, 4, weights, factors, span, d, size, read);
    for (; d + VL <= size; d += VL) add_values(heads, 1, weights, factors, span, d, size, read);
    for (; d < size; d++)
        for (int h = 0; h < heads; h++) {
            float sum = read[h * size + d] * factors[h];
            for (int i = span->from; i < span->to; i++) sum += weights[h][i] * span->values[i][d];
            read[h * size + d] = sum;
        }
}

static void read_heads(int64_t count, const float *query, const Span *span, int64_t size, Softmax *softmax, float *read) {
    for (; count >= 3; count -= 3, query += 3 * size, read += 3 * size, softmax += 3)
        read_span(3, query, span, size, softmax, read);
    if (count == 2) read_span(2, query, span, size, softmax, read);
    else if (count == 1) read_span(1, query, span, size, softmax, read);
}

INLINE void start_reading(Softmax *softmax, float *read, int64_t group, int64_t size) {
    memset(read, 0, (size_t)(group * size) * sizeof(float));
    for (int64_t h = 0; h < group; h++) softmax[h] = (Softmax){-INFINITY, {0}};
}

INLINE void finish_reading(const Softmax *softmax, float *read, int64_t group, int64_t size) {
    for (int64_t h = 0; h < group; h++) {
        const float total = vf_sum(vf_load(softmax[h].total));
        for (int64_t d = 0; d < size; d++) read[h * size + d] /= total;
    }
}

static void attend_task(void *context, int64_t index) {
    const Run *run = context;
    const Shape *shape = run->pass->shape;
    const int64_t size = shape->head_size, group = shape->heads / shape->key_heads, width = shape->heads * size;
    const int64_t head = index % shape->key_heads, start = index / shape->key_heads * run->tile;
    const int64_t stop = min64(run->pass->num_nodes, start + run->tile), offset = head * group * size;
    Softmax softmax[MAX_TILE][MAX_GROUP];
    int64_t first = INT64_MAX, last = 0;
    for (int64_t n = start; n < stop; n++) {
        start_reading(softmax[n - start], run->read + n * width + offset, group, size);
        first = min64(first, first_visible(run, &run->nodes[n]));
        if (run->nodes[n].position > last) last = run->nodes[n].position;
    }
    for (int64_t base = first / SPAN * SPAN; base <= last; base += SPAN)
        for (int64_t n = start; n < stop; n++) {
            const Node *node = &run->nodes[n];
            if (base > node->position || base + SPAN <= first_visible(run, node)) continue;
            Span span;
            find_span(run, node, head, base, &span);
            read_heads(group, run->query + n * width + offset, &span, size, softmax[n - start],
                       run->read + n * width + offset);
        }
    for (int64_t n = start; n < stop; n++)
        finish_reading(softmax[n - start], run->read + n * width + offset, group, size);
}

#endif
