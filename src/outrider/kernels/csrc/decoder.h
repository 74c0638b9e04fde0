/* A decoder's layers, its cache rows and one pass over them, as decoder.py describes them. Activations are fp32.
 *
 * Sizes: N nodes, H hidden, Q query heads, KH key heads, HD head size, I inner, T slots of a row's buffer. */
#ifndef OUTRIDER_DECODER_H
#define OUTRIDER_DECODER_H

#include "linear.h"

typedef struct { /* mirrored by decoder.py, as all below */
    int64_t hidden, heads, key_heads, head_size, inner;
    float epsilon; /* of every norm */
    int32_t activation;
} Shape;

typedef struct {
    const Linear *query, *key, *value, *output, *gate, *up, *down;
    const float *input_norm, *mlp_norm;             /* (H,) */
    const float *after_attention, *after_mlp;       /* (H,) or NULL: norms of a branch before it joins the residual */
    const float *query_norm, *key_norm;             /* (HD,) or NULL */
    int64_t index;                                  /* its place in the cache rows */
    int64_t window;                                 /* newest positions seen; 0: all */
    float scale;                                    /* of the scores */
    int32_t rope;                                   /* which table */
} Layer;

typedef struct {
    float *buffer;      /* (L, 2, T, KH, HD): keys, then values */
    int64_t capacity;   /* T */
    int64_t length;     /* committed slots */
    int64_t start, end; /* its nodes in the pass; node start + i is written to slot length + i */
    int64_t chain;      /* whether each node's parent is the one before it */
} Row;

typedef struct {
    const Shape *shape;
    const Layer *const *layers;
    const Row *rows;
    const int32_t *parents;    /* (N,) place of the parent in the pass, -1 for a root; NULL if all rows are chains */
    const float *ropes[2];     /* (positions, 2, HD): cosines and sines */
    float *states;             /* (N, H): embeddings at the start, overwritten */
    float *const *captured;    /* per layer: NULL, or (N, H) for a copy of its output */
    const int64_t *wanted;     /* (M,) nodes whose final state is asked for */
    const float *final_norm;   /* (H,) */
    float *final;              /* (M, H) */
    int64_t num_layers, num_rows, num_nodes, num_wanted;
    int32_t num_threads;
} Pass;

typedef struct {
    const Row *row;
    const int32_t *way; /* the nodes of its row from the root to itself, counted from the row's first; NULL in a chain */
    int64_t position;
} Node;

typedef struct { /* one layer of one pass, as its tasks see it */
    const Pass *pass;
    const Layer *layer;
    const Node *nodes;
    float *normed, *query, *key, *value, *read, *branch, *gate, *up; /* (N, ...) */
    int64_t tile; /* nodes in an attention task */
} Run;

/* Where a layer's keys (half 0) or values (half 1) of a row begin. */
INLINE float *cache_slots(const Run *run, const Row *row, int half) {
    const Shape *shape = run->pass->shape;
    return row->buffer + (run->layer->index * 2 + half) * row->capacity * shape->key_heads * shape->head_size;
}

#endif
