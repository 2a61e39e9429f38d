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

/* Whether a text that goes on for FORM_BYTES begins with these bytes, which have as much room. */
TARGET static inline int NAME(begins_with)(const uint8_t *text, const uint8_t *bytes, int32_t size)
{
#if WIDE == 32
    __m256i equal = _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)text), _mm256_loadu_si256((const __m256i *)bytes));
    int first = __builtin_ctzll(~(uint64_t)(uint32_t)_mm256_movemask_epi8(equal));
    return first >= size || (first == 32 && !memcmp(text + 32, bytes + 32, (size_t)size - 32));
#else
    return !memcmp(text, bytes, (size_t)size);
#endif
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
            at = scalar_end(text, size, at);
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

/* Of the keys that followed `before`, the one that stands at `at`; 0 where none of them does, or the text ends too soon to tell. */
TARGET static inline int NAME(guessed)(const scan *s, const uint8_t *text, int64_t size, int64_t at, int before)
{
    if (at + FORM_BYTES >= size)
        return 0;
    for (int guess = 0; guess < GUESSES; guess++) {
        int form = s->form[before].next[guess];
        if (!form)
            break;
        if (NAME(begins_with)(text + at, s->form[form].bytes, s->form[form].size))
            return form;
    }
    return 0;
}

/* Go from behind a brace or a value, at `at`, to the value of the next member, and set `*form` to that of its key and `*which` to
   its place; or behind the closing brace, with `*which` NOTHING_MORE. WANTING or ODD. */
TARGET static inline int64_t NAME(next_value)(scan *s, const uint8_t *text, int64_t size, int64_t at, int *form, int *which)
{
    int before = *form, is_event = s->form[before].which <= NO_MEMBER;
    if ((*form = NAME(guessed)(s, text, size, at, before)) != 0) {
        *which = s->form[*form].which;
        /* The key that was read had no space before its value; this may have. */
        at = skip_space(text, size, at + s->form[*form].size);
        return at < size ? at : WANTING;
    }
    int64_t begin = at;
    at = skip_space(text, size, at);
    if (at >= size)
        return WANTING;
    if (text[at] == '}') {
        *which = NOTHING_MORE;
        return at + 1;
    }
    if (before > ARGUMENTS_BEGIN) {
        if (text[at] != ',')
            return ODD;
        at = skip_space(text, size, at + 1);
        if (at >= size)
            return WANTING;
    }
    if (text[at] != '"')
        return ODD;
    int escaped = 0;
    int64_t key = at + 1, end = NAME(string_end)(text, size, at, &escaped);
    if (end < 0)
        return end;
    if (is_event)
        *which = escaped ? NO_MEMBER : member_of(text + key, end - 1 - key);
    else
        *which = escaped ? NO_COLUMN : column_of(s, text + key, end - 1 - key);
    at = after_colon(text, size, end);
    if (at >= 0)
        *form = note_form(s, before, text + begin, at - begin, *which, is_event ? EVENT_GOES_ON : ARGUMENTS_GO_ON);
    return at;
}

/* Take the arguments of an event, the object at `at`, into the columns that ask for them; behind it, WANTING or ODD. */
TARGET static int64_t NAME(take_arguments)(scan *s, const uint8_t *text, int64_t size, int64_t at, span *found)
{
    int form = ARGUMENTS_BEGIN, which;
    for (at++;;) {
        at = NAME(next_value)(s, text, size, at, &form, &which);
        if (at < 0 || which == NOTHING_MORE)
            return at;
        int64_t end = NAME(value_end)(text, size, at);
        if (end < 0)
            return end;
        if (which >= FIRST_COLUMN)
            found[which - FIRST_COLUMN] = (span){at, end - at};
        at = end;
    }
}

/* Take the event at `at` as a row; behind it, WANTING, ODD, or FULL where memory is short. */
TARGET static int64_t NAME(take_event)(scan *s, const uint8_t *text, int64_t size, int64_t at)
{
    span member[MEMBERS], found[MOST_ARGUMENTS];
    for (int each = 0; each < MEMBERS; each++)
        member[each].size = 0;
    for (int each = 0; each < s->arguments; each++)
        found[each].size = 0;
    int form = EVENT_BEGINS, which;
    for (at++;;) {
        at = NAME(next_value)(s, text, size, at, &form, &which);
        if (at < 0)
            return at;
        if (which == NOTHING_MORE)
            break;
        int64_t end;
        if (which == ARGS && text[at] == '{') {
            if (member[ARGS].size)
                return ODD; /* twice: which one counts is for the slower reader to say */
            end = NAME(take_arguments)(s, text, size, at, found);
        } else {
            end = NAME(value_end)(text, size, at);
        }
        if (end < 0)
            return end;
        if (which != NO_MEMBER)
            member[which] = (span){at, end - at};
        at = end;
    }
    if (!is_event(text, member))
        return ODD;
    return keep_row(s, text, member, found) ? at : FULL;
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
