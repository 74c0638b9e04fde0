/* y[m, n] = sum over k of x[m, k] * weight[n, k], plus bias: nn.Linear for few rows, its weights streamed once.
 *
 * Weights are bf16, fp32, or int8 with one scale per output; activations bf16 or fp32; sums are fp32, with int8 weights
 * exact whole numbers of activations rounded row by row (pack.h). Every (m, n) has an accumulator of its own and the same
 * order of additions whatever tile it falls in (tile.h). So a row's result depends on nothing but that row and the
 * weights: not on M, on its place, on the tile, on the thread.
 *
 * Order of work: chunks of weight rows are shared over the threads; within a chunk, a group of weight rows stays in the
 * caches while all activation rows pass over it, and the next group is fetched meanwhile.
 */
#include "linear.h"
#include "pack.h"
#include "scratch.h"
#include "threads.h"
#include "tile.h"

enum { MAX_ROWS = 128 };       /* activation rows packed at once: 128 x 8,960 floats are 4.6 MB */
enum { TILES_IN_GROUP = 4 };   /* 12 weight rows x 1,536 in bf16 are 37 kB */
enum { MAX_CHUNK = 96 };       /* outputs per task: small enough to even out a disturbed core */
enum { LONG_ROW_BYTES = 8192 }; /* from here on the hardware's own prefetch is the better one (measured) */
enum { SERIAL_PACK = 1 << 14, SERIAL_PRODUCT = 1 << 16 }; /* elements, multiply-adds: below, waking threads costs more */

/* Twelve accumulators, three weights and one activation fill the sixteen registers of AVX2. For one or two rows, more
 * weight rows at once keep more reads in flight; tile.h has the tiles of MAX_R for no more than two. */
INLINE int64_t tile_rows(int64_t rows) { return rows > 2 ? 3 : MAX_R; }

static void store(const Work *work, int64_t first_row, int64_t n, int64_t r_count, int64_t c_count,
                  float sums[MAX_R][MAX_C]) {
    const Linear *linear = work->linear;
    for (int64_t c = 0; c < c_count; c++)
        for (int64_t r = 0; r < r_count; r++) {
            float value = sums[r][c];
            if (linear->scale) value *= work->x_scale[first_row + c] * linear->scale[n + r];
            if (linear->bias) value += element(linear->bias, linear->bias_type, n + r);
            int64_t at = (first_row + c) * linear->num_outputs + n + r;
            if (work->x_type == BF16) ((uint16_t *)work->y)[at] = float_to_bf16(value);
            else ((float *)work->y)[at] = value;
        }
}

/* Outputs start .. stop - 1 for all rows; `ahead` (empty for none) is fetched bit by bit on the way. */
static void group_outputs(const Work *work, int64_t start, int64_t stop, Ahead ahead) {
    const int64_t r_max = tile_rows(work->rows), num_blocks = ceil_div(work->rows, MAX_C);
    const int64_t num_tiles = num_blocks * ceil_div(stop - start, r_max);
    const int64_t share = ceil_div(ceil_div(ahead.end - ahead.next, num_tiles), 64) * 64;
    float sums[MAX_R][MAX_C];
    for (int64_t block = 0; block < num_blocks; block++) {
        int64_t first = block * MAX_C, c = min64(MAX_C, work->rows - first);
        const char *x = (const char *)work->packed + first * work->steps * STEP * packed_size(work->linear->weight_type);
        for (int64_t n = start; n < stop; n += r_max) {
            int64_t r = min64(r_max, stop - n), left = ahead.end - ahead.next;
            Ahead part = {ahead.next, ahead.next + min64(share, left)};
            ahead.next = part.end;
            tiles[work->linear->weight_type][r - 1][c - 1](work->linear, n, x, part, sums);
            store(work, first, n, r, c, sums);
        }
    }
}

static void chunk_task(void *context, int64_t index) {
    const Work *work = context;
    const Linear *linear = work->linear;
    const char *weight = linear->weight;
    const int64_t row_bytes = linear->size * element_size(linear->weight_type);
    const int64_t end = min64(linear->num_outputs, (index + 1) * work->chunk);
    const int64_t group = tile_rows(work->rows) * (work->rows > MAX_C ? TILES_IN_GROUP : 1);
    for (int64_t start = index * work->chunk; start < end; start += group) {
        int64_t stop = min64(end, start + group), next_stop = min64(linear->num_outputs, stop + group);
        Ahead ahead = {weight + stop * row_bytes, weight + next_stop * row_bytes};
        if (row_bytes >= LONG_ROW_BYTES) ahead.end = ahead.next;
        group_outputs(work, start, stop, ahead);
    }
}

static int64_t chunk_size(int64_t num_outputs, int num_threads) {
    int64_t fair = num_outputs / (4 * num_threads) / 12 * 12; /* whole groups, at least four tasks a thread */
    return fair < 12 ? 12 : min64(fair, MAX_CHUNK);
}

static __thread Scratch packing; /* for the packed rows of a call */

typedef struct { /* works over the same packed rows; tasks first[i] .. first[i + 1] - 1 are those of works[i] */
    Work works[MAX_SHARED];
    int64_t first[MAX_SHARED + 1];
} Shared;

static void shared_task(void *context, int64_t index) {
    const Shared *shared = context;
    int i = 0;
    while (index >= shared->first[i + 1]) i++;
    chunk_task((void *)&shared->works[i], index - shared->first[i]);
}

/* All products of `count` packed rows from `before` on; `packed` has room for them. */
static void shared_rows(const Products *products, int64_t before, int64_t count, void *packed) {
    const Linear *const *linears = products->linears;
    const int64_t size = linears[0]->size, bytes = before * element_size(products->x_type);
    const int num_threads = products->num_threads;
    float x_scale[MAX_ROWS];
    Shared shared;
    shared.first[0] = 0;
    int64_t multiplies = 0;
    for (int i = 0; i < products->count; i++) {
        int64_t outputs = linears[i]->num_outputs, chunk = chunk_size(outputs, num_threads);
        shared.works[i] = (Work){linears[i], (const char *)products->x + bytes * size,
                                 (char *)products->y[i] + bytes * outputs, packed, x_scale, count, ceil_div(size, STEP),
                                 chunk, products->x_type};
        shared.first[i + 1] = shared.first[i] + ceil_div(outputs, chunk);
        multiplies += count * size * outputs;
    }
    run_tasks(pack_block, &shared.works[0], ceil_div(count, MAX_C), count * size < SERIAL_PACK ? 1 : num_threads);
    run_tasks(shared_task, &shared, shared.first[products->count], multiplies < SERIAL_PRODUCT ? 1 : num_threads);
}

static int same_packing(const Products *products) {
    for (int i = 1; i < products->count; i++)
        if (products->linears[i]->weight_type != products->linears[0]->weight_type) return 0;
    return 1;
}

int outrider_products(const Products *products) {
    if (!same_packing(products)) {
        for (int i = 0; i < products->count; i++) {
            Products one = *products;
            one.count = 1, one.linears[0] = products->linears[i], one.y[0] = products->y[i];
            if (outrider_products(&one)) return -1;
        }
        return 0;
    }
    const int64_t steps = ceil_div(products->linears[0]->size, STEP), rows = products->rows;
    const int element = packed_size(products->linears[0]->weight_type);
    void *packed = reserve(&packing, (size_t)(min64(rows, MAX_ROWS) * steps * STEP * element));
    if (!packed) return rows ? -1 : 0;
    for (int64_t first = 0; first < rows; first += MAX_ROWS)
        shared_rows(products, first, min64(MAX_ROWS, rows - first), packed);
    return 0;
}

/* x (rows, K) and y (rows, N) contiguous, both of x_type. Returns 0, or -1 when there is no memory to pack x. */
int outrider_linear(const Linear *linear, const void *x, int64_t rows, int32_t x_type, void *y, int32_t num_threads) {
    Products products = {{linear}, {y}, x, rows, 1, x_type, num_threads};
    return outrider_products(&products);
}
