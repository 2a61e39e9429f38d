/* Loops over columns of numbers, for which numpy takes more memory or several passes. */

#include <stdint.h>

/* The first place of each code from -1 on, which `first` has in the order of the codes; it keeps what it was for one that is nowhere. */
void first_places(const int32_t *codes, int64_t count, int64_t *first)
{
    for (int64_t place = count - 1; place >= 0; place--)
        first[codes[place] + 1] = place;
}

/* For each number of `work` the place of the call with that number that begins first, of several the first; -1 for none. `place_of` has
   `width` places, one for each number from `least` on, all of them -1. A call without a number has -1. */
void earliest_calls(const int64_t *work, int64_t works, const int64_t *calls, const int64_t *begun, int64_t count, int64_t least, int64_t width,
                    int32_t *place_of, int64_t *found)
{
    for (int64_t place = 0; place < count; place++) {
        if (calls[place] == -1)
            continue;
        int32_t *known = &place_of[calls[place] - least];
        if (*known < 0 || begun[place] < begun[*known])
            *known = (int32_t)place;
    }
    for (int64_t place = 0; place < works; place++) {
        uint64_t offset = (uint64_t)work[place] - (uint64_t)least;
        found[place] = offset < (uint64_t)width ? place_of[offset] : -1;
    }
}

/* For each code its place in a table of `size` values of 1, 4 or 8 bytes; a negative one counts from the end. */
void look_up(const void *table, int64_t size, int32_t bytes, const int32_t *codes, int64_t count, void *out)
{
#define LOOK_UP(type) \
    for (int64_t place = 0; place < count; place++) \
        ((type *)out)[place] = ((const type *)table)[codes[place] < 0 ? size + codes[place] : codes[place]]
    if (bytes == 1)
        LOOK_UP(uint8_t);
    else if (bytes == 4)
        LOOK_UP(uint32_t);
    else
        LOOK_UP(uint64_t);
#undef LOOK_UP
}

/* A value of a column of 1, 4 or 8 bytes; one of one byte has no sign. */
static int64_t value_at(const void *column, int32_t bytes, int64_t row)
{
    return bytes == 1 ? ((const uint8_t *)column)[row] : bytes == 4 ? ((const int32_t *)column)[row] : ((const int64_t *)column)[row];
}

/* Number the rows that agree in all columns, in the order of their values; returns how many there are. Column k has `widths[k]` values
   from `lows[k]` on; `number_of` has a place for each combination, all of them 0. `first` is the first row of each number. */
int64_t group_rows(const void *const *columns, const int32_t *bytes, const int64_t *lows, const int64_t *widths, int32_t count, int64_t rows,
                   int32_t *number_of, int64_t places, int32_t *group, int64_t *first)
{
    for (int64_t row = 0; row < rows; row++)
        group[row] = 0;
    for (int32_t at = 0; at < count; at++) {
        const void *column = columns[at];
        int64_t low = lows[at], width = widths[at];
        int32_t size = bytes[at];
#define ADD(of) \
    for (int64_t row = 0; row < rows; row++) \
        group[row] = (int32_t)(group[row] * width + (value_at(column, of, row) - low))
        if (size == 1)
            ADD(1);
        else if (size == 4)
            ADD(4);
        else
            ADD(8);
#undef ADD
    }
    for (int64_t row = 0; row < rows; row++)
        number_of[group[row]] = 1;
    int64_t numbers = 0;
    for (int64_t place = 0; place < places; place++)
        if (number_of[place])
            number_of[place] = (int32_t)numbers++;
    for (int64_t row = rows - 1; row >= 0; row--) {
        group[row] = number_of[group[row]];
        first[group[row]] = row;
    }
    return numbers;
}
