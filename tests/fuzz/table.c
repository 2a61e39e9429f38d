/* libFuzzer's door to the scanner of tables: any bytes, whole and in two halves.

   What the sanitizers say ends it, and so does a difference between the two. The bytes lie at the end of an allocation of their
   own size, so that a read beyond them is seen. */

#define COLUMNS_BY_MALLOC
#include "../../perfgate/trace/scanner/table.c"

enum { COLUMNS = 6 };
static const uint8_t KINDS[COLUMNS] = {TEXT, TIME, WHOLE, REAL, NUMBER, SKIPPED};

/* The end of what was taken; the text from there on goes on with `more` of it. */
static int64_t taken(table *t, const uint8_t *text, int64_t size)
{
    uint8_t *own = malloc(size ? (size_t)size : 1);
    if (!own)
        abort();
    memcpy(own, text, (size_t)size);
    int64_t end = table_take(t, own, size);
    free(own);
    if (end > size || (end < 0 && end != TABLE_ODD && end != TABLE_FULL))
        abort();
    return end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    table *whole = table_new(KINDS, COLUMNS), *halves = table_new(KINDS, COLUMNS);
    if (!whole || !halves)
        abort();
    int64_t all = taken(whole, data, (int64_t)size), half = taken(halves, data, (int64_t)size / 2);
    if (half >= 0) {
        int64_t rest = taken(halves, data + half, (int64_t)size - half);
        half = rest < 0 ? rest : half + rest;
    }
    size_t rows = (size_t)whole->rows;
    if (all != half)
        abort();
    if (all >= 0 && (whole->rows != halves->rows || whole->texts.used != halves->texts.used ||
                     (rows && (memcmp(whole->column[0], halves->column[0], rows * 4) ||
                               memcmp(whole->column[1], halves->column[1], rows * 8) ||
                               memcmp(whole->column[2], halves->column[2], rows * 8) ||
                               memcmp(whole->column[3], halves->column[3], rows * 8) ||
                               memcmp(whole->column[4], halves->column[4], rows * 8)))))
        abort();
    table_free(whole);
    table_free(halves);
    return 0;
}
