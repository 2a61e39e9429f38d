/* The rows of a csv table as columns: whole numbers, times in nanoseconds, real numbers, and every text once.

   It takes the plain case of what Python's csv module reads, which is nearly all of it, and calls everything else odd: rows that
   are too short or too long, quotes in the middle of a cell, a line break in one, numbers that are none. What then holds is for
   the slower reader to say. It never reads outside of [text, text + size). */

#include "values.h"

#include <math.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

/* A real number may be a word instead, which is none; what is wanted as a number may not. */
enum { SKIPPED = 0, TEXT = 1, WHOLE = 2, TIME = 3, REAL = 4, NUMBER = 5 };
enum { TABLE_ODD = -2, TABLE_FULL = -3 };
enum { MOST_COLUMNS = 512, MOST_TABLE_ROWS = 50000000, MOST_LINE = 1 << 20, EXACT_DIGITS = 15 };
static const double MOST_NUMBER = 1e30;

typedef struct {
    /* What the caller reads. */
    int64_t rows;
    void *column[MOST_COLUMNS];
    text_table texts;
    /* What the scan needs. */
    int64_t room;
    int32_t columns;
    uint8_t kind[MOST_COLUMNS];
    int32_t last[MOST_COLUMNS]; /* the number of the text in the row before, which many columns repeat */
    uint8_t *unquoted;
    int64_t unquoted_room;
} table;

int32_t table_version(void)
{
    return 2;
}

void table_free(table *t)
{
    if (!t)
        return;
    for (int32_t column = 0; column < t->columns; column++)
        column_free(t->column[column]);
    texts_free(&t->texts);
    free(t->unquoted);
    free(t);
}

table *table_new(const uint8_t *kind, int32_t columns)
{
    if (columns < 1 || columns > MOST_COLUMNS)
        return NULL;
    table *t = calloc(1, sizeof *t);
    if (!t || !texts_begin(&t->texts)) {
        free(t);
        return NULL;
    }
    memcpy(t->kind, kind, (size_t)columns);
    memset(t->last, -1, sizeof t->last);
    t->columns = columns;
    return t;
}

/* The caller has copied a column. */
void table_release(table *t, int32_t column)
{
    column_free(t->column[column]);
    t->column[column] = NULL;
}

static int make_room(table *t)
{
    if (t->rows < t->room)
        return 1;
    int64_t room = t->room * 2 + 1024;
    if (room > MOST_TABLE_ROWS)
        return 0;
    for (int32_t column = 0; column < t->columns; column++) {
        if (t->kind[column] == SKIPPED)
            continue;
        if (!column_widen(&t->column[column], (size_t)room * (t->kind[column] == TEXT ? sizeof(int32_t) : sizeof(int64_t))))
            return 0;
    }
    t->room = room;
    return 1;
}

static inline int is_blank(uint8_t byte)
{
    return byte == ' ' || byte == '\t';
}

static int is_absent(const uint8_t *cell, int64_t size)
{
    return size == 0 || (size == 1 && cell[0] == '-') || (size == 2 && !memcmp(cell, "NA", 2)) ||
           (size == 3 && !memcmp(cell, "N/A", 3));
}

/* A number as float() reads it; NAN for a word, which is no number of a counter. 0 where only float() can say. */
static int real_number(const uint8_t *cell, int64_t size, double *value)
{
    static const double power[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    int64_t at = size && cell[0] == '-', digits = 0, decimals = 0, number = 0;
    *value = NAN;
    if (size > MOST_NUMBER_TEXT)
        return 1;
    for (; at < size && is_digit(cell[at]); at++, digits++)
        number = digits < EXACT_DIGITS ? number * 10 + (cell[at] - '0') : 0;
    if (!digits) {
        /* Of what begins with a letter only inf and nan are numbers, and neither is a value. */
        for (int64_t letter = 0; letter < size; letter++)
            if (cell[letter] >= 0x80)
                return 0;
        return size == 0 || (uint8_t)((cell[0] | 0x20) - 'a') < 26;
    }
    if (at < size && cell[at] == '.')
        for (at++; at < size && is_digit(cell[at]); at++, digits++, decimals++)
            number = digits < EXACT_DIGITS ? number * 10 + (cell[at] - '0') : 0;
    if (at == size && digits <= EXACT_DIGITS) {
        /* Both are exact, so their quotient is the nearest number there is (Clinger 1990). */
        *value = (double)(cell[0] == '-' ? -number : number) / power[decimals];
        return 1;
    }
    if (at < size && (cell[at] | 0x20) == 'e') {
        at++;
        if (at < size && (cell[at] == '-' || cell[at] == '+'))
            at++;
        int64_t exponent = at;
        while (at < size && is_digit(cell[at]))
            at++;
        if (at == exponent)
            return 0;
    }
    if (at < size)
        return 0;
    char plain[MOST_NUMBER_TEXT + 1] = {0};
    memcpy(plain, cell, (size_t)size);
    *value = strtod(plain, NULL);
    if (!isfinite(*value))
        *value = NAN;
    return 1;
}

/* The first position from `at` on that ends a cell without quotes: a comma, the end of a line, or a zero; `size` for none. */
static inline int64_t cell_end(const uint8_t *text, int64_t size, int64_t at)
{
#if defined(__SSE2__)
    const __m128i comma = _mm_set1_epi8(','), feed = _mm_set1_epi8('\n'), back = _mm_set1_epi8('\r');
    for (; at + 16 <= size; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(text + at));
        __m128i breaks = _mm_or_si128(_mm_cmpeq_epi8(bytes, feed), _mm_cmpeq_epi8(bytes, back));
        __m128i others = _mm_or_si128(_mm_cmpeq_epi8(bytes, comma), _mm_cmpeq_epi8(bytes, _mm_setzero_si128()));
        uint32_t mask = (uint32_t)_mm_movemask_epi8(_mm_or_si128(breaks, others));
        if (mask)
            return at + __builtin_ctz(mask);
    }
#elif defined(__ARM_NEON)
    const uint8x16_t comma = vdupq_n_u8(','), feed = vdupq_n_u8('\n'), back = vdupq_n_u8('\r');
    for (; at + 16 <= size; at += 16) {
        uint8x16_t bytes = vld1q_u8(text + at);
        uint8x16_t breaks = vorrq_u8(vceqq_u8(bytes, feed), vceqq_u8(bytes, back));
        uint8x16_t hit = vorrq_u8(breaks, vorrq_u8(vceqq_u8(bytes, comma), vceqq_u8(bytes, vdupq_n_u8(0))));
        /* Four bits a byte, as NEON has no movemask. */
        uint64_t mask = vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(hit), 4)), 0);
        if (mask)
            return at + (__builtin_ctzll(mask) >> 2);
    }
#endif
    while (at < size && text[at] != ',' && text[at] != '\n' && text[at] != '\r' && text[at])
        at++;
    return at;
}

/* Whether the row before has the same text in a column. */
static inline int repeats(const table *t, int32_t column, const uint8_t *cell, int64_t size)
{
    int32_t last = t->last[column];
    if (last < 0)
        return 0;
    int64_t begin = last ? t->texts.ends[last - 1] : 0;
    return t->texts.ends[last] - begin == size && (!size || !memcmp(t->texts.bytes + begin, cell, (size_t)size));
}

/* Take a cell without its quotes into the row; 0 where it is odd, -1 where memory is short. */
static int take_cell(table *t, int32_t column, const uint8_t *cell, int64_t size)
{
    int64_t row = t->rows;
    uint8_t kind = t->kind[column];
    if (kind == SKIPPED)
        return 1;
    if (kind == TEXT) {
        int32_t number = repeats(t, column, cell, size) ? t->last[column] : number_of(&t->texts, cell, size);
        ((int32_t *)t->column[column])[row] = t->last[column] = number;
        return number < 0 ? -1 : 1;
    }
    while (size && is_blank(cell[0]))
        cell++, size--;
    while (size && is_blank(cell[size - 1]))
        size--;
    while (size && cell[0] == '"')
        cell++, size--;
    while (size && cell[size - 1] == '"')
        size--;
    int absent = is_absent(cell, size);
    if (kind == REAL || kind == NUMBER) {
        double *value = (double *)t->column[column] + row;
        return real_number(cell, absent ? 0 : size, value) && (kind == REAL || absent || fabs(*value) <= MOST_NUMBER);
    }
    int64_t *value = (int64_t *)t->column[column] + row;
    *value = ABSENT;
    if (absent)
        return 1;
    if (kind == WHOLE) {
        *value = whole_number(cell, size);
        return *value != NO_NUMBER;
    }
    int negative = cell[0] == '-';
    *value = nanoseconds(cell + negative, size - negative);
    if (*value == ODD_TIME)
        return 0;
    if (negative)
        *value = -*value;
    return 1;
}

/* Whether a cell holds the end of a line or a zero. */
static inline int has_break(const uint8_t *cell, int64_t size)
{
    for (int64_t at = 0; (at = cell_end(cell, size, at)) < size; at++)
        if (cell[at] != ',')
            return 1;
    return 0;
}

/* Behind the cell at `at`, which is taken; -1 where the text ends in it, TABLE_ODD, or TABLE_FULL. */
static int64_t take_quoted(table *t, int32_t column, const uint8_t *text, int64_t size, int64_t at)
{
    int64_t begin = ++at, used = 0;
    for (;;) {
        const uint8_t *quote = memchr(text + at, '"', (size_t)(size - at));
        if (!quote || quote + 1 == text + size)
            return -1;
        int64_t end = quote - text;
        int doubled = text[end + 1] == '"';
        if ((doubled || used) && t->kind[column] != SKIPPED) {
            int64_t more = end - begin + doubled;
            if (used + more > t->unquoted_room) {
                uint8_t *wider = realloc(t->unquoted, (size_t)(used + more) * 2);
                if (!wider)
                    return TABLE_FULL;
                t->unquoted = wider;
                t->unquoted_room = (used + more) * 2;
            }
            memcpy(t->unquoted + used, text + begin, (size_t)more);
            used += more;
        }
        if (doubled) {
            begin = at = end + 2;
            continue;
        }
        if (t->kind[column] == SKIPPED)
            return end + 1;
        const uint8_t *cell = used ? t->unquoted : text + begin;
        int64_t length = used ? used : end - begin;
        if (has_break(cell, length))
            return TABLE_ODD;
        int taken = take_cell(t, column, cell, length);
        return taken > 0 ? end + 1 : taken ? TABLE_FULL : TABLE_ODD;
    }
}

/* Take the whole lines of a text. Returns where the first that is not whole begins, TABLE_ODD, or TABLE_FULL. */
int64_t table_take(table *t, const uint8_t *text, int64_t size)
{
    int64_t line = 0;
    while (line < size) {
        int64_t at = line;
        if (text[at] == '\r' && at + 1 == size)
            return line;
        if (text[at] == '\n' || (text[at] == '\r' && text[at + 1] == '\n')) {
            line = at + 1 + (text[at] == '\r');
            continue;
        }
        if (!make_room(t))
            return TABLE_FULL;
        for (int32_t column = 0; column < t->columns; column++) {
            if (at < size && text[at] == '"') {
                at = take_quoted(t, column, text, size, at);
                if (at < -1)
                    return at;
                if (at < 0)
                    return line;
            } else {
                int64_t begin = at;
                at = cell_end(text, size, at);
                if (at >= size)
                    return line;
                int taken = take_cell(t, column, text + begin, at - begin);
                if (taken <= 0)
                    return taken ? TABLE_FULL : TABLE_ODD;
            }
            if (at >= size)
                return line;
            if (column + 1 < t->columns) {
                if (text[at++] != ',')
                    return TABLE_ODD;
            } else if (text[at] == '\r') {
                if (at + 1 >= size)
                    return line;
                at++;
            }
        }
        if (text[at] != '\n' || at - line >= MOST_LINE)
            return TABLE_ODD;
        t->rows++;
        line = at + 1;
    }
    return line;
}
