/* Which call each call of a thread lies in: the loop of perfgate.trace.scanner.nesting.enclosing_calls, which has the words for it. */

#include <stdint.h>
#include <stdlib.h>

/* `order` are the `count` calls by track, start and, the longer first, duration. `around` gets the innermost call that holds all
   of each, and keeps what it was where there is none; of the open calls the last `most` are tried. Returns how many calls outlast
   one of their own kind that they began in, -1 where memory is short. */
int64_t enclosing_calls(const int64_t *start, const int64_t *duration, const uint8_t *kind, const int32_t *track,
                        const int32_t *order, int64_t count, int64_t most, int32_t *around)
{
    int32_t *open = malloc((size_t)(count ? count : 1) * sizeof *open);
    int64_t depth = 0, cut = 0;
    if (!open)
        return -1;
    for (int64_t place = 0; place < count; place++) {
        int32_t call = order[place], holding = -1;
        while (depth && (track[open[depth - 1]] != track[call] || start[open[depth - 1]] + duration[open[depth - 1]] <= start[call]))
            depth--;
        for (int64_t at = depth - 1; at >= 0 && at >= depth - most; at--) {
            if (start[open[at]] + duration[open[at]] >= start[call] + duration[call]) {
                holding = open[at];
                break;
            }
        }
        if (holding >= 0)
            around[call] = holding;
        cut += depth && holding != open[depth - 1] && kind[open[depth - 1]] == kind[call];
        open[depth++] = call;
    }
    free(open);
    return cut;
}
