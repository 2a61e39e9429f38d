/* Texts, numbers and growing columns, for the scanner of events and that of tables. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* mremap */
#endif
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__) && !defined(COLUMNS_BY_MALLOC)
#include <sys/mman.h>
#endif

enum { PLAIN_DIGITS = 16, NUMBER_DIGITS = 18, MOST_NUMBER_TEXT = 64 };
/* Instead of a time: none was given; one that is no plain number. */
static const int64_t ABSENT = INT64_MIN, ODD_TIME = INT64_MIN + 1;
static const int64_t NO_NUMBER = -1;

typedef struct {
    uint64_t hash;
    int64_t at;
    int32_t size, number;
} slot;

/* Every text once: its bytes behind one another in `bytes`, its end in `ends`. */
typedef struct {
    slot *slots;
    uint64_t mask;
    uint8_t *bytes;
    int64_t used, room;
    int64_t *ends;
    int32_t count, ends_room;
} text_table;

static inline uint64_t folded(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* As wyhash does it: both halves of the product of two words. The last words of a long text overlap. Never 0. */
static inline uint64_t hash_of(const uint8_t *bytes, int64_t size)
{
    const uint64_t a = 0xa0761d6478bd642fu, b = 0xe7037ed1a0b428dbu;
    uint64_t hash = (uint64_t)size ^ b, first = 0, second = 0;
    if (size >= 16) {
        for (int64_t at = 0; at < size - 16; at += 16) {
            memcpy(&first, bytes + at, 8);
            memcpy(&second, bytes + at + 8, 8);
            hash = folded(first ^ a, second ^ hash);
        }
        memcpy(&first, bytes + size - 16, 8);
        memcpy(&second, bytes + size - 8, 8);
    } else if (size >= 8) {
        memcpy(&first, bytes, 8);
        memcpy(&second, bytes + size - 8, 8);
    } else {
        for (int64_t at = 0; at < size; at++)
            first = first << 8 | bytes[at];
    }
    return folded(folded(first ^ a, second ^ hash), b) | 1;
}

static int texts_begin(text_table *table)
{
    memset(table, 0, sizeof *table);
    table->mask = (1u << 12) - 1;
    table->slots = calloc(table->mask + 1, sizeof(slot));
    return table->slots != NULL;
}

static inline void texts_free(text_table *table)
{
    free(table->slots);
    free(table->bytes);
    free(table->ends);
}

static int texts_widen(text_table *table)
{
    uint64_t mask = table->mask * 2 + 1;
    slot *wider = calloc(mask + 1, sizeof(slot));
    if (!wider)
        return 0;
    for (uint64_t old = 0; old <= table->mask; old++) {
        if (!table->slots[old].hash)
            continue;
        uint64_t place = table->slots[old].hash & mask;
        while (wider[place].hash)
            place = (place + 1) & mask;
        wider[place] = table->slots[old];
    }
    free(table->slots);
    table->slots = wider;
    table->mask = mask;
    return 1;
}

/* The number of a text, a new one where it is new; -1 where memory is short. */
static int32_t number_of(text_table *table, const uint8_t *bytes, int64_t size)
{
    uint64_t hash = hash_of(bytes, size), place = hash & table->mask;
    for (; table->slots[place].hash; place = (place + 1) & table->mask) {
        const slot *known = &table->slots[place];
        if (known->hash == hash && known->size == size && (!size || !memcmp(table->bytes + known->at, bytes, (size_t)size)))
            return known->number;
    }
    if (size > INT32_MAX || table->count == INT32_MAX)
        return -1;
    if (table->used + size > table->room) {
        int64_t room = (table->used + size) * 2 + 4096;
        uint8_t *more = realloc(table->bytes, (size_t)room);
        if (!more)
            return -1;
        table->bytes = more;
        table->room = room;
    }
    if (table->count == table->ends_room) {
        int32_t room = table->ends_room > INT32_MAX / 2 ? INT32_MAX : table->ends_room * 2 + 1024;
        int64_t *more = realloc(table->ends, (size_t)room * sizeof *more);
        if (!more)
            return -1;
        table->ends = more;
        table->ends_room = room;
    }
    table->slots[place] = (slot){hash, table->used, (int32_t)size, table->count};
    if (size)
        memcpy(table->bytes + table->used, bytes, (size_t)size);
    table->used += size;
    table->ends[table->count++] = table->used;
    if ((uint64_t)table->count * 2 > table->mask && !texts_widen(table))
        return -1;
    return table->count - 1;
}

/* A column that grows. Its pages come from the kernel, which moves them without a copy and has them back at once: of many columns
   that grow in turns malloc would copy, and leave holes. Under a sanitizer malloc it is, so that a read beyond the end is seen. */
#if defined(__linux__) && !defined(COLUMNS_BY_MALLOC)
enum { COLUMN_HEAD = 64 }; /* in front of a column: its size */

/* Not on huge pages: clearing one that has lain unused takes longer than the faults that it saves, above all in a virtual machine. */
static inline int column_widen(void **column, size_t bytes)
{
    size_t room = bytes + COLUMN_HEAD;
    char *head = *column ? (char *)*column - COLUMN_HEAD : NULL;
    void *more = head ? mremap(head, *(size_t *)head, room, MREMAP_MAYMOVE)
                      : mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (more == MAP_FAILED)
        return 0;
    *(size_t *)more = room;
    *column = (char *)more + COLUMN_HEAD;
    return 1;
}

static inline void column_free(void *column)
{
    if (column)
        munmap((char *)column - COLUMN_HEAD, *(size_t *)((char *)column - COLUMN_HEAD));
}
#else
static inline int column_widen(void **column, size_t bytes)
{
    void *more = realloc(*column, bytes);
    if (more)
        *column = more;
    return more != NULL;
}

static inline void column_free(void *column)
{
    free(column);
}
#endif

static inline int is_digit(uint8_t byte)
{
    return (uint8_t)(byte - '0') < 10;
}

/* The number that eight digits make, -1 where not all of them are digits: all at once, by steps of two, four and eight digits. */
static inline int64_t eight_digits(const uint8_t *text)
{
    uint64_t word;
    memcpy(&word, text, sizeof word);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    const uint64_t high = UINT64_C(0xf0f0f0f0f0f0f0f0);
    if (((word & high) | ((word + UINT64_C(0x0606060606060606)) & high) >> 4) != UINT64_C(0x3333333333333333))
        return -1;
    word = (word & UINT64_C(0x0f0f0f0f0f0f0f0f)) * (10 * 256 + 1) >> 8;
    word = (word & UINT64_C(0x00ff00ff00ff00ff)) * (100 * 65536 + 1) >> 16;
    return (int64_t)((word & UINT64_C(0x0000ffff0000ffff)) * ((UINT64_C(10000) << 32) + 1) >> 32);
}

/* A plain decimal number of microseconds in nanoseconds, below one half to even; ODD_TIME for every other. */
static int64_t nanoseconds(const uint8_t *text, int64_t size)
{
    int64_t at = 0, whole = 0, part = 0;
    if (size >= 2 && text[0] == '"') {
        text++;
        size -= 2;
    }
    for (int64_t eight; at + 8 <= size && at + 8 <= PLAIN_DIGITS && (eight = eight_digits(text + at)) >= 0; at += 8)
        whole = whole * 100000000 + eight;
    for (; at < size && is_digit(text[at]); at++) {
        if (at == PLAIN_DIGITS)
            return ODD_TIME;
        whole = whole * 10 + (text[at] - '0');
    }
    if (at == 0 || whole >= INT64_C(4611686018427387))
        return ODD_TIME;
    if (at == size)
        return whole * 1000;
    if (text[at++] != '.')
        return ODD_TIME;
    int digits = 0;
    for (; at < size && is_digit(text[at]) && digits < 3; at++, digits++)
        part = part * 10 + (text[at] - '0');
    for (; digits < 3; digits++)
        part *= 10;
    int64_t exact = whole * 1000 + part;
    if (at == size)
        return exact;
    int up = text[at] > '5', half = text[at] == '5', rest = 0;
    for (int64_t digit = at; digit < size; digit++) {
        if (!is_digit(text[digit]))
            return ODD_TIME;
        rest |= digit > at && text[digit] != '0';
    }
    if (size > MOST_NUMBER_TEXT)
        return ODD_TIME;
    return exact + (up || (half && (rest || (exact & 1))));
}

/* A whole number of at most 18 digits; NO_NUMBER for every other value. */
static int64_t whole_number(const uint8_t *text, int64_t size)
{
    int64_t number = 0;
    if (size < 1 || size > NUMBER_DIGITS)
        return NO_NUMBER;
    for (int64_t at = 0; at < size; at++) {
        if (!is_digit(text[at]))
            return NO_NUMBER;
        number = number * 10 + (text[at] - '0');
    }
    return number;
}
