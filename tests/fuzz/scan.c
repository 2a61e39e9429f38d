/* libFuzzer's door to the scanner of trace events: any bytes, whole and in two halves, by both instruction sets, with keys compared
   to those before and without.

   What the sanitizers say ends it, and so does a difference between the ways to read the same bytes. The bytes lie at the end
   of an allocation of their own size, so that a read beyond them is seen. */

#define COLUMNS_BY_MALLOC
#include "../../perfgate/trace/scanner/events.c"
#include <stdio.h>

static const char *const KEYS[] = {"correlation", "Input Dims", "name"};
static const uint8_t NUMBERS[] = {1, 0, 0};

static scan *scanned(const uint8_t *text, int64_t size, int64_t stop, int wide, int guesses)
{
    scan *s = scan_new(KEYS, NUMBERS, 3);
    if (!s)
        abort();
    if (!guesses)
        s->fragments = MOST_FRAGMENTS; /* so that none is noted */
    int64_t end = scan_take(s, text, size, 0, stop, 1, wide);
    if (end < 0 || end > size)
        abort();
    if (s->state == STOPPED && stop < size)
        end = scan_take(s, text, size, end, size, 1, wide);
    if (end < 0 || end > size)
        abort();
    return s;
}

static int rows_differ(const row_set *a, const row_set *b)
{
    size_t rows = (size_t)a->count, flows = (size_t)a->flow.count;
    if (a->count != b->count || a->flow.count != b->flow.count)
        return 1;
    for (int which = 0; which < 3; which++) {
        const sparse_column *one = &a->argument[which], *other = &b->argument[which];
        size_t count = (size_t)one->count;
        if (one->count != other->count ||
            (count && (memcmp(one->row, other->row, count * 4) || memcmp(one->value, other->value, count * (NUMBERS[which] ? 8 : 4)))))
            return 1;
    }
    return (flows && (memcmp(a->flow.row, b->flow.row, flows * 4) || memcmp(a->flow.value, b->flow.value, flows * 8))) ||
           (rows && (memcmp(a->phase, b->phase, rows) || memcmp(a->event, b->event, rows * 4) ||
                     memcmp(a->category, b->category, rows * 4) || memcmp(a->name, b->name, rows * 4) ||
                     memcmp(a->track, b->track, rows * 4) || memcmp(a->start, b->start, rows * 8) ||
                     memcmp(a->duration, b->duration, rows * 8)));
}

static int differ(const scan *a, const scan *b)
{
    return a->events != b->events || a->state != b->state || a->texts.used != b->texts.used || a->odd_count != b->odd_count ||
           rows_differ(&a->rows[COMPLETE], &b->rows[COMPLETE]) || rows_differ(&a->rows[OTHERS], &b->rows[OTHERS]) ||
           rows_differ(&a->rows[ARROWS], &b->rows[ARROWS]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *text = malloc(size ? size : 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    scan *whole = scanned(text, (int64_t)size, (int64_t)size, 1, 1), *plain = scanned(text, (int64_t)size, (int64_t)size, 0, 1);
    scan *halves = scanned(text, (int64_t)size, (int64_t)size / 2, 1, 1);
    scan *unguessed = scanned(text, (int64_t)size, (int64_t)size, 1, 0);
    if (differ(whole, plain) || differ(whole, halves) || differ(whole, unguessed)) {
        fprintf(stderr, "two ways to read the same bytes differ\n");
        abort();
    }
    scan_free(whole);
    scan_free(plain);
    scan_free(halves);
    scan_free(unguessed);
    free(text);
    return 0;
}
