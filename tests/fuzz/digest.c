/* What the scanner makes of files, in a line each: how it ended and a number over every column. The same on every processor. */

#include "../../perfgate/trace/scanner/events.c"
#include <stdio.h>

static const char *const KEYS[] = {"correlation", "Input Dims", "connection_id", "name"};
static const uint8_t NUMBERS[] = {1, 0, 1, 0};

static uint64_t mixed(uint64_t sum, const void *bytes, int64_t size)
{
    for (int64_t at = 0; at < size; at++)
        sum = (sum ^ ((const uint8_t *)bytes)[at]) * 0x100000001b3u; /* FNV-1a */
    return sum;
}

static uint64_t mixed_rows(uint64_t sum, const row_set *rows)
{
    const void *columns[] = {rows->event, rows->category, rows->name, rows->track, rows->start, rows->duration, rows->flow.row,
                             rows->flow.value};
    int64_t n = rows->count, sizes[] = {n * 4, n * 4, n * 4, n * 4, n * 8, n * 8, rows->flow.count * 4, rows->flow.count * 8};
    for (int column = 0; column < 8; column++)
        sum = mixed(sum, columns[column], sizes[column]);
    for (int which = 0; which < 4; which++) {
        sum = mixed(sum, rows->argument[which].row, rows->argument[which].count * 4);
        sum = mixed(sum, rows->argument[which].value, rows->argument[which].count * (NUMBERS[which] ? 8 : 4));
    }
    return sum;
}

int main(int count, char **paths)
{
    for (int file = 1; file < count; file++) {
        FILE *stream = fopen(paths[file], "rb");
        if (!stream || fseek(stream, 0, SEEK_END))
            return 1;
        int64_t size = ftell(stream), begin = 0;
        uint8_t *text = malloc((size_t)size + 1);
        rewind(stream);
        if (!text || fread(text, 1, (size_t)size, stream) != (size_t)size)
            return 1;
        fclose(stream);
        /* The list of events is the first whose first member is an event. */
        while (begin < size && !(text[begin] == '[' && text[skip_space(text, size, begin + 1)] == '{'))
            begin++;
        scan *s = scan_new(KEYS, NUMBERS, 4);
        int64_t end = scan_take(s, text, size, begin < size ? begin + 1 : size, size, 1, 1);
        uint64_t sum = mixed(1, s->texts.bytes, s->texts.used);
        for (int set = 0; set < SETS; set++)
            sum = mixed_rows(sum, &s->rows[set]);
        printf("%lld events, state %d at %lld, %016llx\n", (long long)s->events, s->state, (long long)end, (unsigned long long)sum);
        scan_free(s);
        free(text);
    }
    return 0;
}
