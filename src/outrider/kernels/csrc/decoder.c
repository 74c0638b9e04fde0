/* The layers of a Llama-like decoder over packed nodes in one call: norm, attention, gated MLP, residuals.
 *
 * Activations stay fp32 between the products (a bf16 model in torch rounds them after every operation). Work is cut into
 * tasks by nodes, by outputs of a product, or by nodes and key heads, and what a task computes for a node depends on that
 * node, its path and the weights alone: so do the node's bits.
 */
#include "decoder.h"
#include "activation.h"
#include "attend.h"
#include "norm.h"
#include "rope.h"
#include "scratch.h"
#include "threads.h"

enum { SERIAL_WORK = 1 << 14 }; /* elements or multiply-adds: below, waking threads costs more */

INLINE int threads_for(const Run *run, int64_t work) { return work < SERIAL_WORK ? 1 : run->pass->num_threads; }

/* ---- tasks of one node */

static void start_task(void *context, int64_t n) { /* what the attention products read */
    const Run *run = context;
    const Shape *shape = run->pass->shape;
    const int64_t at = n * shape->hidden;
    rms_norm(run->pass->states + at, run->layer->input_norm, shape->hidden, shape->epsilon, run->normed + at);
}

static void place_task(void *context, int64_t n) { /* queries rotated, keys and values into the cache */
    const Run *run = context;
    const Shape *shape = run->pass->shape;
    const Layer *layer = run->layer;
    const Node *node = &run->nodes[n];
    const int64_t size = shape->head_size, width = shape->key_heads * size;
    const int64_t slot = node->row->length + n - node->row->start;
    const float *table = run->pass->ropes[layer->rope] + node->position * 2 * size;
    for (int64_t head = 0; head < shape->heads; head++) {
        float *query = run->query + (n * shape->heads + head) * size;
        if (layer->query_norm) rms_norm(query, layer->query_norm, size, shape->epsilon, query);
        rotate(query, table, size, layer->scale, query);
    }
    for (int64_t head = 0; head < shape->key_heads; head++) {
        float *key = run->key + n * width + head * size;
        if (layer->key_norm) rms_norm(key, layer->key_norm, size, shape->epsilon, key);
        rotate(key, table, size, 1.f, cache_slots(run, node->row, 0) + slot * width + head * size);
    }
    memcpy(cache_slots(run, node->row, 1) + slot * width, run->value + n * width, (size_t)width * sizeof(float));
}

static void join(const Run *run, int64_t n, const float *norm) { /* a branch joins the residual */
    const Shape *shape = run->pass->shape;
    float *branch = run->branch + n * shape->hidden, *state = run->pass->states + n * shape->hidden;
    if (norm) rms_norm(branch, norm, shape->hidden, shape->epsilon, branch);
    for (int64_t i = 0; i < shape->hidden; i++) state[i] += branch[i];
}

static void middle_task(void *context, int64_t n) { /* attention joins; what the MLP reads */
    const Run *run = context;
    const Shape *shape = run->pass->shape;
    const int64_t at = n * shape->hidden;
    join(run, n, run->layer->after_attention);
    rms_norm(run->pass->states + at, run->layer->mlp_norm, shape->hidden, shape->epsilon, run->normed + at);
}

static void gate_task(void *context, int64_t n) {
    const Run *run = context;
    const int64_t inner = run->pass->shape->inner, at = n * inner;
    if (run->pass->shape->activation == SILU) activate(SILU, run->gate + at, run->up + at, inner);
    else activate(GELU_TANH, run->gate + at, run->up + at, inner);
}

static void end_task(void *context, int64_t n) { join(context, n, ((const Run *)context)->layer->after_mlp); }

static void final_task(void *context, int64_t m) {
    const Run *run = context;
    const Shape *shape = run->pass->shape;
    const float *state = run->pass->states + run->pass->wanted[m] * shape->hidden;
    rms_norm(state, run->pass->final_norm, shape->hidden, shape->epsilon, run->pass->final + m * shape->hidden);
}

/* ---- steps of a layer; each returns 0, or -1 when there is no memory */

static void each_node(Run *run, Task task, int64_t elements) {
    run_tasks(task, run, run->pass->num_nodes, threads_for(run, run->pass->num_nodes * elements));
}

static int multiply(const Run *run, const float *x, int count, const Linear *const *linears, float *const *y) {
    Products products = {.x = x, .rows = run->pass->num_nodes, .count = count, .x_type = FP32,
                         .num_threads = run->pass->num_threads};
    for (int i = 0; i < count; i++) products.linears[i] = linears[i], products.y[i] = y[i];
    return outrider_products(&products);
}

static void attend(Run *run) {
    const Pass *pass = run->pass;
    const Shape *shape = pass->shape;
    int64_t work = 0, fair = pass->num_nodes * shape->key_heads / (4 * pass->num_threads);
    for (int64_t n = 0; n < pass->num_nodes; n++)
        work += (run->nodes[n].position + 1 - first_visible(run, &run->nodes[n])) * shape->heads * shape->head_size * 2;
    run->tile = fair < 1 ? 1 : min64(fair, MAX_TILE);
    run_tasks(attend_task, run, ceil_div(pass->num_nodes, run->tile) * shape->key_heads, threads_for(run, work));
}

static int run_layer(Run *run, const Layer *layer, int finish) {
    const Shape *shape = run->pass->shape;
    run->layer = layer;
    each_node(run, start_task, shape->hidden);
    if (multiply(run, run->normed, 3, (const Linear *[]){layer->query, layer->key, layer->value},
                 (float *[]){run->query, run->key, run->value})) return -1;
    each_node(run, place_task, (shape->heads + 2 * shape->key_heads) * shape->head_size);
    if (!finish) return 0;
    attend(run);
    if (multiply(run, run->read, 1, &layer->output, &run->branch)) return -1;
    each_node(run, middle_task, shape->hidden);
    if (multiply(run, run->normed, 2, (const Linear *[]){layer->gate, layer->up}, (float *[]){run->gate, run->up}))
        return -1;
    each_node(run, gate_task, 4 * shape->inner);
    if (multiply(run, run->gate, 1, &layer->down, &run->branch)) return -1;
    each_node(run, end_task, shape->hidden);
    return 0;
}

/* ---- nodes and memory of a pass */

static int64_t depth_of(const Pass *pass, const Row *row, int64_t n) {
    int64_t depth = 0;
    if (row->chain) return n - row->start;
    for (; pass->parents[n] >= 0; n = pass->parents[n]) depth++;
    return depth;
}

/* Fills nodes, and the ways of those in trees from `ways` on; with nodes NULL only counts the places that ways need. */
static int64_t lay_out(const Pass *pass, Node *nodes, int32_t *ways) {
    int64_t used = 0;
    for (const Row *row = pass->rows; row < pass->rows + pass->num_rows; row++)
        for (int64_t n = row->start; n < row->end; n++) {
            int64_t depth = depth_of(pass, row, n), at = n;
            if (nodes) nodes[n] = (Node){row, row->chain ? NULL : ways + used, row->length + depth};
            if (row->chain) continue;
            for (int64_t d = depth; nodes && d >= 0; d--, at = pass->parents[at])
                ways[used + d] = (int32_t)(at - row->start);
            used += depth + 1;
        }
    return used;
}

static __thread Scratch arena; /* for the states of a pass */

static int prepare(Run *run, const Pass *pass) {
    const Shape *shape = pass->shape;
    const int64_t width = shape->heads * shape->head_size, key_width = shape->key_heads * shape->head_size;
    const int64_t sizes[] = {shape->hidden, width, key_width, key_width, width, shape->hidden, shape->inner, shape->inner};
    float **buffers[] = {&run->normed, &run->query, &run->key, &run->value, &run->read, &run->branch, &run->gate, &run->up};
    const int64_t num_ways = lay_out(pass, NULL, NULL);
    size_t bytes = 0;
    for (int i = 0; i < 8; i++) bytes += (size_t)(ceil_div(pass->num_nodes * sizes[i], 16) * 64);
    char *memory =
        reserve(&arena, bytes + (size_t)pass->num_nodes * sizeof(Node) + (size_t)num_ways * sizeof(int32_t));
    if (!memory) return -1;
    for (int i = 0; i < 8; i++) {
        *buffers[i] = (float *)memory;
        memory += ceil_div(pass->num_nodes * sizes[i], 16) * 64;
    }
    Node *nodes = (Node *)memory;
    lay_out(pass, nodes, (int32_t *)(nodes + pass->num_nodes));
    run->pass = pass, run->nodes = nodes;
    return 0;
}

/* Runs the pass: keys and values into the rows, outputs of layers where asked, final states of the wanted nodes. Returns
 * 0, or -1 when there is no memory. Without wanted nodes the last layer ends, unless captured, with its keys and values. */
int outrider_decode(const Pass *pass) {
    const Shape *shape = pass->shape;
    Run run;
    if (!pass->num_nodes) return 0;
    if (prepare(&run, pass)) return -1;
    for (int64_t i = 0; i < pass->num_layers; i++) {
        const int finish = i + 1 < pass->num_layers || pass->num_wanted || pass->captured[i];
        if (run_layer(&run, pass->layers[i], finish)) return -1;
        if (pass->captured[i])
            memcpy(pass->captured[i], pass->states, (size_t)(pass->num_nodes * shape->hidden) * sizeof(float));
    }
    run_tasks(final_task, &run, pass->num_wanted, threads_for(&run, pass->num_wanted * shape->hidden));
    return 0;
}

/* out[i] = activation(gate[i]) * up[i], for the tests. */
void outrider_activate(int32_t kind, const float *gate, const float *up, float *out, int64_t size) {
    memcpy(out, gate, (size_t)size * sizeof(float));
    activate(kind, out, up, size);
}
