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

/* Whether a text that goes on for FORM_BYTES begins with these bytes, one or more, which have as much room. */
TARGET static inline int NAME(begins_with)(const uint8_t *text, const uint8_t *bytes, int32_t size)
{
#if WIDE == 32
    uint64_t same = 0;
    for (int at = 0; at < FORM_BYTES; at += 32) {
        __m256i equal = _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)(text + at)),
                                          _mm256_loadu_si256((const __m256i *)(bytes + at)));
        same |= (uint64_t)(uint32_t)_mm256_movemask_epi8(equal) << at;
    }
    return !(~same << (FORM_BYTES - size));
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

/* What `next_value` does where no form that was noted stands at `at`. */
TARGET static int64_t NAME(read_key)(scan *s, const uint8_t *text, int64_t size, int64_t at, key_form **form, int is_event)
{
    key_form *before = *form;
    int64_t begin = at;
    at = skip_space(text, size, at);
    if (at >= size)
        return WANTING;
    *form = s->form + (is_event ? EVENT_GOES_ON : ARGUMENTS_GO_ON);
    if (text[at] == '}') {
        (*form)->which = NOTHING_MORE;
        note_form(s, before, text + begin, at + 1 - begin, NOTHING_MORE, NULL);
        return at + 1;
    }
    if (before != s->form + (is_event ? EVENT_BEGINS : ARGUMENTS_BEGIN)) {
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
    int which = is_event ? NO_MEMBER : NO_COLUMN;
    if (!escaped)
        which = is_event ? member_of(text + key, end - 1 - key) : column_of(s, text + key, end - 1 - key);
    at = after_colon(text, size, end);
    if (at < 0)
        return at;
    (*form)->which = which;
    *form = note_form(s, before, text + begin, at - begin, which, *form);
    return at;
}

/* Go from behind a brace or a value, at `at`, to the value of the next member, and set `*form` to that of its key; or behind
   the closing brace, with a form of NOTHING_MORE. WANTING or ODD. */
TARGET static inline int64_t NAME(next_value)(scan *s, const uint8_t *text, int64_t size, int64_t at, key_form **form,
                                              int is_event)
{
    key_form *const *next = (*form)->next;
    for (int guess = 0; at + FORM_BYTES < size && guess < GUESSES && next[guess]; guess++) {
        if (!NAME(begins_with)(text + at, next[guess]->bytes, next[guess]->size))
            continue;
        *form = next[guess];
        at += next[guess]->size;
        /* The key that was read had no space before its value; this may have. */
        if (text[at] > ' ' || next[guess]->which == NOTHING_MORE)
            return at;
        at = skip_space(text, size, at);
        return at < size ? at : WANTING;
    }
    return NAME(read_key)(s, text, size, at, form, is_event);
}

/* Behind the value at `at` of a key of this form, which may be the value of the last time; WANTING or ODD. */
TARGET static inline int64_t NAME(form_value_end)(key_form *form, const uint8_t *text, int64_t size, int64_t at)
{
    int at_end = at + FORM_BYTES >= size;
    if (!at_end && NAME(begins_with)(text + at, form->value, form->value_size)) {
        form->patience = MOST_PATIENCE;
        return at + form->value_size - 1;
    }
    int64_t end = is_digit(text[at]) ? NAME(scalar_end)(text, size, at) : NAME(value_end)(text, size, at);
    if (form->patience) {
        forget_value(form);
        if (!at_end && end >= 0 && --form->patience && end - at < FORM_BYTES) {
            memcpy(form->value, text + at, FORM_BYTES);
            form->value_size = (int32_t)(end + 1 - at);
        }
    }
    return end;
}

/* Take the arguments of an event, the object at `at`, into the columns that ask for them; behind it, WANTING or ODD. What no
   column asks for goes into the first of `found`. */
TARGET static int64_t NAME(take_arguments)(scan *s, const uint8_t *text, int64_t size, int64_t at, span *found)
{
    key_form *form = s->form + ARGUMENTS_BEGIN;
    for (at++;;) {
        at = NAME(next_value)(s, text, size, at, &form, 0);
        if (at < 0 || form->which == NOTHING_MORE)
            return at;
        int64_t end = NAME(form_value_end)(form, text, size, at);
        if (end < 0)
            return end;
        found[form->which - NO_COLUMN] = (span){at, end - at, form};
        at = end;
    }
}

/* Take the event at `at` as a row; behind it, WANTING, ODD, or FULL where memory is short. */
TARGET static int64_t NAME(take_event)(scan *s, const uint8_t *text, int64_t size, int64_t at)
{
    span member[MEMBERS + 1], found[MOST_ARGUMENTS + 1]; /* each with a place for what is none */
    for (int each = 0; each < MEMBERS; each++)
        member[each].size = 0;
    for (int each = 0; each <= s->arguments; each++)
        found[each].size = 0;
    key_form *form = s->form + EVENT_BEGINS;
    for (at++;;) {
        at = NAME(next_value)(s, text, size, at, &form, 1);
        if (at < 0)
            return at;
        if (form->which == NOTHING_MORE)
            break;
        int64_t end;
        if (form->which == ARGS && text[at] == '{') {
            if (member[ARGS].size)
                return ODD; /* twice: which one counts is for the slower reader to say */
            end = NAME(take_arguments)(s, text, size, at, found);
        } else {
            end = NAME(form_value_end)(form, text, size, at);
        }
        if (end < 0)
            return end;
        member[form->which] = (span){at, end - at, form};
        at = end;
    }
    if (!is_event(text, member))
        return ODD;
    return keep_row(s, text, member, found + 1) ? at : FULL;
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
