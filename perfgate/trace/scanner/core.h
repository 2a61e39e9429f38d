/* The scanner itself, compiled once for each instruction set: events.c includes it with its own NAME, WIDE and TARGET. */

/* The first position from `at` on that ends or interrupts a string: a quote, a backslash or a control character. */
TARGET static int64_t NAME(string_stop)(const uint8_t *text, int64_t size, int64_t at)
{
#if WIDE == 32
    const __m256i quote = _mm256_set1_epi8('"'), back = _mm256_set1_epi8('\\'), last = _mm256_set1_epi8(0x1f);
    for (; at + 32 <= size; at += 32) {
        __m256i bytes = _mm256_loadu_si256((const __m256i *)(text + at));
        __m256i control = _mm256_cmpeq_epi8(_mm256_min_epu8(bytes, last), bytes);
        __m256i hit = _mm256_or_si256(_mm256_or_si256(_mm256_cmpeq_epi8(bytes, quote), _mm256_cmpeq_epi8(bytes, back)), control);
        uint32_t mask = (uint32_t)_mm256_movemask_epi8(hit);
        if (mask)
            return at + __builtin_ctz(mask);
    }
#elif WIDE == 16 && defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"'), back = _mm_set1_epi8('\\'), last = _mm_set1_epi8(0x1f);
    for (; at + 16 <= size; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(text + at));
        __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, last), bytes);
        __m128i hit = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, back)), control);
        uint32_t mask = (uint32_t)_mm_movemask_epi8(hit);
        if (mask)
            return at + __builtin_ctz(mask);
    }
#elif WIDE == 16
    const uint8x16_t quote = vdupq_n_u8('"'), back = vdupq_n_u8('\\'), first = vdupq_n_u8(0x20);
    for (; at + 16 <= size; at += 16) {
        uint8x16_t bytes = vld1q_u8(text + at);
        uint8x16_t hit = vorrq_u8(vorrq_u8(vceqq_u8(bytes, quote), vceqq_u8(bytes, back)), vcltq_u8(bytes, first));
        /* Four bits a byte, as NEON has no movemask. */
        uint64_t mask = vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(hit), 4)), 0);
        if (mask)
            return at + (__builtin_ctzll(mask) >> 2);
    }
#endif
    while (at < size && text[at] != '"' && text[at] != '\\' && text[at] >= 0x20)
        at++;
    return at;
}

/* Whether a text begins with these bytes, one or more; both go on to a multiple of 32 bytes. */
TARGET static inline int NAME(begins_with)(const uint8_t *text, const uint8_t *bytes, int32_t size)
{
#if WIDE == 32
    for (;; text += 32, bytes += 32, size -= 32) {
        __m256i equal = _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)text), _mm256_loadu_si256((const __m256i *)bytes));
        uint32_t others = ~(uint32_t)_mm256_movemask_epi8(equal);
        if (size <= 32)
            return !(others << (32 - size));
        if (others)
            return 0;
    }
#else
    return !memcmp(text, bytes, (size_t)size);
#endif
}

/* Behind the number or literal at `at`; WANTING or ODD. */
TARGET static inline int64_t NAME(scalar_end)(const uint8_t *text, int64_t size, int64_t at)
{
#if WIDE == 32
    if (at + 32 < size) {
        __m256i over = _mm256_sub_epi8(_mm256_loadu_si256((const __m256i *)(text + at)), _mm256_set1_epi8('0'));
        __m256i digits = _mm256_cmpeq_epi8(_mm256_min_epu8(over, _mm256_set1_epi8(9)), over);
        uint64_t others = ~(uint64_t)(uint32_t)_mm256_movemask_epi8(digits);
        int whole = __builtin_ctzll(others), part = __builtin_ctzll(others & (others - 1));
        int end = text[at + whole] == '.' ? part : whole;
        if (whole && (whole == 1 || text[at] != '0') && end < 32 && end != whole + 1 && (text[at + end] | 0x20) != 'e')
            return at + end;
    }
#endif
    return scalar_end(text, size, at);
}

/* Behind the string whose opening quote is at `at`; WANTING or ODD. `*escaped` is set where it holds a backslash. */
TARGET static int64_t NAME(string_end)(const uint8_t *text, int64_t size, int64_t at, int *escaped)
{
    at++;
    for (;;) {
        at = NAME(string_stop)(text, size, at);
        if (at >= size)
            return WANTING;
        if (text[at] == '"')
            return at + 1;
        if (text[at] != '\\')
            return ODD;
        *escaped = 1;
        if (at + 1 >= size)
            return WANTING;
        if (text[at + 1] == 'u') {
            if (at + 6 > size)
                return WANTING;
            for (int digit = 2; digit < 6; digit++)
                if (!is_hexadecimal(text[at + digit]))
                    return ODD;
            at += 6;
        } else if (text[at + 1] && strchr("\"\\/bfnrt", text[at + 1])) {
            at += 2;
        } else {
            return ODD;
        }
    }
}

/* The value of the member whose key is at `at`; WANTING or ODD. */
TARGET static int64_t NAME(key_end)(const uint8_t *text, int64_t size, int64_t at)
{
    int escaped = 0;
    if (at >= size)
        return WANTING;
    if (text[at] != '"')
        return ODD;
    at = NAME(string_end)(text, size, at, &escaped);
    return at < 0 ? at : after_colon(text, size, at);
}

/* Behind the value at `at`, of any kind and checked throughout; WANTING or ODD. */
TARGET static int64_t NAME(value_end)(const uint8_t *text, int64_t size, int64_t at)
{
    uint8_t closing[DEEPEST];
    int depth = 0, escaped = 0;
    for (;;) {
        if (at >= size)
            return WANTING;
        uint8_t byte = text[at];
        if (byte == '"') {
            at = NAME(string_end)(text, size, at, &escaped);
        } else if (byte == '{' || byte == '[') {
            if (depth == DEEPEST)
                return ODD;
            at = skip_space(text, size, at + 1);
            if (at >= size)
                return WANTING;
            if (text[at] == (byte == '{' ? '}' : ']')) {
                at++;
            } else {
                closing[depth++] = byte == '{' ? '}' : ']';
                if (byte == '[')
                    continue;
                at = NAME(key_end)(text, size, at);
                if (at < 0)
                    return at;
                continue;
            }
        } else {
            at = NAME(scalar_end)(text, size, at);
        }
        if (at < 0)
            return at;
        /* Behind a value: what closes, or a comma and the next. */
        for (;;) {
            if (!depth)
                return at;
            at = skip_space(text, size, at);
            if (at >= size)
                return WANTING;
            if (text[at] == closing[depth - 1]) {
                depth--;
                at++;
                continue;
            }
            if (text[at] != ',')
                return ODD;
            at = skip_space(text, size, at + 1);
            if (closing[depth - 1] == '}') {
                at = NAME(key_end)(text, size, at);
                if (at < 0)
                    return at;
            }
            break;
        }
    }
}

/* Read the fragment at `at`, behind `here`, to which `*next` is set; behind it, WANTING or ODD. */
TARGET static int64_t NAME(read_fragment)(scan *s, const uint8_t *text, int64_t size, int64_t at, fragment *here, fragment **next)
{
    int is_event = here->place == EVENT_BEGINS || here->place == EVENT_GOES_ON, escaped = 0;
    int64_t begin = at;
    at = skip_space(text, size, at);
    if (at >= size)
        return WANTING;
    if (text[at] == '}') {
        *next = note_fragment(s, here, text + begin, at + 1 - begin, NO_VALUE, is_event ? EVENT_ENDS : EVENT_GOES_ON);
        return at + 1;
    }
    if (here->place == EVENT_GOES_ON || here->place == ARGUMENTS_GO_ON) {
        if (text[at] != ',')
            return ODD;
        at = skip_space(text, size, at + 1);
        if (at >= size)
            return WANTING;
    }
    if (text[at] != '"')
        return ODD;
    int64_t key = at + 1, end = NAME(string_end)(text, size, at, &escaped);
    if (end < 0)
        return end;
    int which = is_event ? NO_MEMBER : NO_COLUMN, place = is_event ? EVENT_GOES_ON : ARGUMENTS_GO_ON;
    if (!escaped)
        which = is_event ? member_of(text + key, end - 1 - key) : column_of(s, text + key, end - 1 - key);
    at = after_colon(text, size, end);
    if (at < 0)
        return at;
    if (which == ARGS && text[at] == '{') {
        which = NO_VALUE;
        place = ARGUMENTS_BEGIN;
        at++;
    }
    *next = note_fragment(s, here, text + begin, at - begin, which, place);
    return at;
}

/* The fragment at `at` if it is one that followed `here` before; NULL for another. */
TARGET static inline fragment *NAME(guessed_fragment)(fragment *here, const uint8_t *text, int64_t size, int64_t at)
{
    if (at + FRAGMENT_BYTES >= size)
        return NULL;
    for (int guess = 0; guess < GUESSES && here->next[guess]; guess++) {
        fragment *next = here->next[guess];
        if (!NAME(begins_with)(text + at, next->bytes, next->size))
            continue;
        /* A brace belongs to the fragment. */
        int64_t value = next->which == ARGS ? skip_space(text, size, at + next->size) : size;
        return value < size && text[value] == '{' ? NULL : next;
    }
    return NULL;
}

/* Behind the value at `at` that follows a fragment; WANTING or ODD. `*known` is the same value of an earlier time. */
TARGET static inline int64_t NAME(value_behind)(scan *s, fragment *f, const uint8_t *text, int64_t size, int64_t at, known_value **known)
{
    int is_compared = f->patience && at + VALUE_BYTES < size;
    *known = NULL;
    if (is_compared) {
        count_visit(f);
        for (int each = 0; each < VALUES; each++) {
            known_value *value = f->value + each;
            if (!value->size || !NAME(begins_with)(text + at, value->bytes, value->size))
                continue;
            f->patience = MOST_PATIENCE;
            value->hits++;
            *known = value;
            return at + value->size - 1;
        }
    }
    int64_t end = is_digit(text[at]) ? NAME(scalar_end)(text, size, at) : NAME(value_end)(text, size, at);
    if (is_compared && end >= 0 && --f->patience && end - at < VALUE_BYTES)
        *known = note_value(s, f, text + at, end + 1 - at);
    return end;
}

/* Take the event at `at` as a row; behind it, WANTING, ODD, or FULL where memory is short. */
TARGET static int64_t NAME(take_event)(scan *s, const uint8_t *text, int64_t size, int64_t at)
{
    event_values event;
    fragment *before = NULL, *here = s->fragment + EVENT_BEGINS, *next;
    known_value *known = NULL;
    event.there = 0;
    at++;
    for (; here->place != EVENT_ENDS; before = here, here = next) {
        int64_t begin = at;
        next = NAME(guessed_fragment)(here, text, size, at);
        if (next) {
            at += next->size;
            if (here >= s->fragment + PLACES && is_steady(here, known))
                join_fragments(s, before, here, known, next);
        } else {
            at = NAME(read_fragment)(s, text, size, at, here, &next);
            if (at < 0)
                return at;
        }
        if (!take_constants(&event, next, begin))
            return ODD;
        known = NULL;
        if (next->which == NO_VALUE) {
            count_visit(next);
            continue;
        }
        /* The fragment that was read had no space before its value; this may have. */
        if (text[at] <= ' ') {
            at = skip_space(text, size, at);
            if (at >= size)
                return WANTING;
        }
        int64_t end = NAME(value_behind)(s, next, text, size, at, &known);
        if (end < 0)
            return end;
        if (!take_value(&event, next->which, (span){at, end - at, known ? &known->number : NULL}))
            return ODD;
        at = end;
    }
    if (event.there >> ARGS_END & 1)
        event.value[ARGS].size = event.value[ARGS_END].at - event.value[ARGS].at;
    if (!is_event(text, &event))
        return ODD;
    return keep_row(s, text, &event) ? at : FULL;
}

/* Take events from `at`, where a member of the list may stand, to the first that begins at `stop` or behind it. */
TARGET static int64_t NAME(take_events)(scan *s, const uint8_t *text, int64_t size, int64_t at, int64_t stop, int first)
{
    for (;;) {
        int64_t before = at;
        at = skip_space(text, size, at);
        if (at < size && text[at] == ']') {
            s->state = CLOSED;
            return at;
        }
        if (!first && at < size) {
            if (text[at] != ',') {
                s->state = ODD;
                return at;
            }
            at = skip_space(text, size, at + 1);
        }
        if (at >= size) {
            s->state = WANTING;
            return before;
        }
        if (text[at] != '{') {
            s->state = ODD;
            return at;
        }
        if (at >= stop) {
            s->state = STOPPED;
            return at;
        }
        int64_t end = NAME(take_event)(s, text, size, at);
        if (end < 0) {
            s->state = (int)end;
            return end == ODD ? at : before;
        }
        first = 0;
        at = end;
    }
}

#undef NAME
#undef WIDE
#undef TARGET
