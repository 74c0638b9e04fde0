/* Memory that grows with need and is kept for the next call. Its owner declares it once per calling thread. */
#ifndef OUTRIDER_SCRATCH_H
#define OUTRIDER_SCRATCH_H

#include <stdlib.h>

typedef struct { /* zeroed at first */
    void *bytes;
    size_t capacity;
} Scratch;

/* At least `bytes` of it, aligned to a cache line, its content undefined; NULL when there is no memory. */
static void *reserve(Scratch *scratch, size_t bytes) {
    if (bytes > scratch->capacity) {
        free(scratch->bytes);
        scratch->capacity = (bytes + 4095) / 4096 * 4096;
        scratch->bytes = aligned_alloc(64, scratch->capacity);
        if (!scratch->bytes) scratch->capacity = 0;
    }
    return scratch->bytes;
}

#endif
