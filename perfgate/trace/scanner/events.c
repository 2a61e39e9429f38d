/* Trace events (Chrome's JSON format, as Kineto and torch_npu write it) into columns: complete events, of which most readers want
   all, apart from arrows and from the others; times as integer nanoseconds, every text once.

   JSON is checked throughout. What needs a judgement is left to the caller: a time that is no plain number is kept as text,
   and at what is no event the scan stops and says where. It never reads outside of [text, text + size). */

#include "values.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

enum { VERSION = 15 };

/* How a scan ended. WANTING: in the middle of an event, which more text may complete. ODD: at what is no event. */
enum { STOPPED = 0, CLOSED = 1, WANTING = -1, ODD = -2, FULL = -3 };
enum { DEEPEST = 256, MOST_ARGUMENTS = 20, MOST_ROWS = 50000000 };
/* Members of an event that are columns, and where its arguments end; then what is none, then the arguments that are asked for. */
enum { PH, CAT, NAME_, PID, TID, TS, DUR, ID, ARGS, ARGS_END, NO_MEMBER, NO_COLUMN, FIRST_COLUMN, NO_VALUE = -1 };

typedef struct {
    int32_t event, member, text;
} odd_time;

/* What an event has between its values, as it stands in a file: from behind a value or a brace up to the next value, `, "dur": `,
   or behind a brace. A profiler writes few of these, and mostly in the same order, so comparing with what followed last time saves
   reading it. With values that hardly change between them two become one: `"ph": "X", "cat": "kernel", "name": `. */
enum { FRAGMENT_BYTES = 128, VALUE_BYTES = 64, MOST_FRAGMENTS = 512, GUESSES = 12, VALUES = 4, MOST_CONSTANTS = 12 };
/* A value that stood behind a fragment so often, and in so large a part of the last times, becomes part of it. After so many new
   values in turn none is compared any more. */
enum { FEWEST_HITS = 4, PART = 8, MOST_VISITS = 1 << 12, MOST_PATIENCE = 32 };
/* Where a fragment ends: what may follow is a key, behind a value with a comma before it, or a brace. What follows in the one place
   is never tried in another, where the same bytes may be no JSON, or another member. */
enum { EVENT_BEGINS, ARGUMENTS_BEGIN, EVENT_GOES_ON, ARGUMENTS_GO_ON, EVENT_ENDS, PLACES };

/* A value inside of a fragment. `number` is that of its text, -1 where that is not known. */
typedef struct {
    int32_t at, size, which, number;
} constant;

/* A value that stood behind a fragment, and the byte behind it: the same bytes end in the same place. */
typedef struct {
    uint8_t bytes[VALUE_BYTES];
    int32_t size, number, hits;
} known_value;

/* `which` is the member or the column of the value that follows, NO_VALUE behind a brace. The first fragment of each place has no
   bytes: it stands for all that there was no room for. */
typedef struct fragment fragment;
struct fragment {
    uint8_t bytes[FRAGMENT_BYTES];
    int32_t size, which, place, constants;
    constant constant[MOST_CONSTANTS];
    int32_t visits, patience;
    known_value value[VALUES];
    fragment *next[GUESSES]; /* those that followed it, the longest first */
};

/* A value in the text; `number` is where that of its text may be kept. */
typedef struct {
    int64_t at, size;
    int32_t *number;
} span;

/* The values of an event, and which of them are there: a bit each. */
typedef struct {
    uint32_t there;
    span value[FIRST_COLUMN + MOST_ARGUMENTS];
} event_values;

/* A column that few rows have a value in: the rows, and the value of each, an int64_t or an int32_t. */
typedef struct {
    int32_t *row;
    void *value;
    int64_t count, room;
} sparse_column;

/* Events as rows: `event` is the number of each in the scan. */
typedef struct {
    int64_t count;
    uint8_t *phase;
    int32_t *event, *category, *name, *track;
    int64_t *start, *duration;
    sparse_column flow, argument[MOST_ARGUMENTS];
    int64_t room;
} row_set;
enum { COMPLETE, OTHERS, ARROWS, SETS };

typedef struct {
    /* What the caller reads. */
    int64_t events;
    row_set rows[SETS];
    text_table texts, tracks; /* a track's text is the numbers of two texts, process and thread */
    odd_time *odd;
    int64_t odd_count;
    int32_t state, arguments;
    /* What the scan needs. */
    int32_t kept; /* a bit for each set that is kept; of the others the events are counted */
    int64_t odd_room;
    int32_t is_short_of_memory;
    char *key[MOST_ARGUMENTS];
    int64_t key_size[MOST_ARGUMENTS];
    uint8_t is_number[MOST_ARGUMENTS];
    int32_t counters; /* the column of the whole arguments of counters, -1 for none */
    fragment fragment[MOST_FRAGMENTS];
    uint32_t sum[MOST_FRAGMENTS]; /* of what tells fragments apart; 0 for those made of others */
    int32_t fragments;
    uint32_t chance;
    int32_t pair[2], track; /* of the last event */
} scan;

/* --- JSON */

static inline int is_space(uint8_t byte)
{
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

static inline int is_hexadecimal(uint8_t byte)
{
    return is_digit(byte) || (uint8_t)((byte | 0x20) - 'a') < 6;
}

static inline int64_t skip_space(const uint8_t *text, int64_t size, int64_t at)
{
    while (at < size && is_space(text[at]))
        at++;
    return at;
}

/* The value behind the colon that stands at `at` or behind space. */
static inline int64_t after_colon(const uint8_t *text, int64_t size, int64_t at)
{
    at = skip_space(text, size, at);
    if (at >= size)
        return WANTING;
    if (text[at] != ':')
        return ODD;
    at = skip_space(text, size, at + 1);
    return at < size ? at : WANTING;
}

static inline int64_t skip_digits(const uint8_t *text, int64_t size, int64_t at)
{
    while (at < size && is_digit(text[at]))
        at++;
    return at;
}

static int64_t literal_end(const uint8_t *text, int64_t size, int64_t at)
{
    const char *literal = text[at] == 't' ? "true" : text[at] == 'f' ? "false" : "null";
    int64_t length = (int64_t)strlen(literal), there = size - at < length ? size - at : length;
    if (memcmp(text + at, literal, (size_t)there))
        return ODD;
    return there < length ? WANTING : at + length;
}

/* Behind a number or a literal. At the end of the text a number may go on. */
static inline int64_t scalar_end(const uint8_t *text, int64_t size, int64_t at)
{
    if (text[at] >= 'a')
        return literal_end(text, size, at);
    if (text[at] == '-')
        at++;
    int64_t whole = skip_digits(text, size, at);
    if (whole >= size)
        return WANTING;
    if (whole == at || (text[at] == '0' && whole > at + 1))
        return ODD;
    at = whole;
    if (text[at] == '.') {
        int64_t fraction = skip_digits(text, size, at + 1);
        if (fraction >= size)
            return WANTING;
        if (fraction == at + 1)
            return ODD;
        at = fraction;
    }
    if ((text[at] | 0x20) == 'e') {
        at++;
        if (at < size && (text[at] == '+' || text[at] == '-'))
            at++;
        int64_t power = skip_digits(text, size, at);
        if (power >= size)
            return WANTING;
        if (power == at)
            return ODD;
        at = power;
    }
    return at;
}

/* --- members of an event */

static inline int member_of(const uint8_t *key, int64_t size)
{
    switch (size) {
    case 2:
        if (key[0] == 'p' && key[1] == 'h')
            return PH;
        if (key[0] == 't' && key[1] == 's')
            return TS;
        return key[0] == 'i' && key[1] == 'd' ? ID : NO_MEMBER;
    case 3:
        if (!memcmp(key, "pid", 3))
            return PID;
        if (!memcmp(key, "tid", 3))
            return TID;
        if (!memcmp(key, "dur", 3))
            return DUR;
        return memcmp(key, "cat", 3) ? NO_MEMBER : CAT;
    case 4:
        if (!memcmp(key, "name", 4))
            return NAME_;
        return memcmp(key, "args", 4) ? NO_MEMBER : ARGS;
    default:
        return NO_MEMBER;
    }
}

static inline int column_of(const scan *s, const uint8_t *key, int64_t size)
{
    for (int column = 0; column < s->arguments; column++)
        if (size && s->key_size[column] == size && !memcmp(s->key[column], key, (size_t)size))
            return FIRST_COLUMN + column;
    return NO_COLUMN;
}

/* --- fragments */

static void add_constant(fragment *f, int32_t at, int32_t size, int32_t which, int32_t number)
{
    f->constant[f->constants++] = (constant){at, size, which, number};
}

static void fill_fragment(fragment *f, int64_t size, int which, int place)
{
    f->size = (int32_t)size;
    f->which = which;
    f->place = place;
    f->constants = 0;
    if (which == NO_VALUE && place == ARGUMENTS_BEGIN)
        add_constant(f, f->size - 1, 0, ARGS, -1);
    if (which == NO_VALUE && place == EVENT_GOES_ON)
        add_constant(f, f->size, 0, ARGS_END, -1);
}

/* Have `next` tried behind `before`; a longer one, which a shorter one may begin, comes first. */
static void let_follow(fragment *before, fragment *next)
{
    int at = 0;
    while (at < GUESSES - 1 && before->next[at] && before->next[at] != next && before->next[at]->size >= next->size)
        at++;
    for (int same = at; same < GUESSES; same++)
        if (before->next[same] == next)
            return;
    memmove(before->next + at + 1, before->next + at, (size_t)(GUESSES - 1 - at) * sizeof *before->next);
    before->next[at] = next;
}

/* The fragment of these bytes, noted to follow `before`; that without bytes where there is no room for it. */
static fragment *note_fragment(scan *s, fragment *before, const uint8_t *bytes, int64_t size, int which, int place)
{
    fragment *f = s->fragment + place;
    fill_fragment(f, size, which, place);
    if (size > FRAGMENT_BYTES)
        return f;
    uint32_t sum = (uint32_t)(hash_of(bytes, size) >> 32) ^ ((uint32_t)which << 8 | (uint32_t)place);
    int32_t number = PLACES;
    for (; number < s->fragments; number++) {
        const fragment *known = s->fragment + number;
        if (s->sum[number] == sum && known->size == size && known->which == which && known->place == place
            && !memcmp(known->bytes, bytes, (size_t)size))
            break;
    }
    if (number == MOST_FRAGMENTS)
        return f;
    f = s->fragment + number;
    if (number == s->fragments) {
        memcpy(f->bytes, bytes, (size_t)size);
        fill_fragment(f, size, which, place);
        f->patience = MOST_PATIENCE;
        s->sum[number] = sum;
        s->fragments++;
    }
    let_follow(before, f);
    return f;
}

/* Count a visit of a fragment; what was long ago counts less. */
static inline void count_visit(fragment *f)
{
    if (++f->visits < MOST_VISITS)
        return;
    f->visits /= 2;
    for (int each = 0; each < VALUES; each++)
        f->value[each].hits /= 2;
}

/* Note a value behind a fragment in the place of any other: of more values that come in turns some have to stay. */
static known_value *note_value(scan *s, fragment *f, const uint8_t *bytes, int64_t size)
{
    s->chance = s->chance * 1664525 + 1013904223;
    known_value *value = f->value + (s->chance >> 16) % VALUES;
    memcpy(value->bytes, bytes, VALUE_BYTES);
    value->size = (int32_t)size;
    value->number = -1;
    value->hits = 0;
    return value;
}

/* Whether two that follow each other should be one: the value between them is most often the same, or there is none. */
static int is_steady(const fragment *first, const known_value *value)
{
    if (first->which == NO_VALUE)
        return first->visits >= FEWEST_HITS;
    return value && value->hits >= FEWEST_HITS && value->hits * PART >= first->visits;
}

static int holds(const fragment *f, int which)
{
    int there = f->which == which;
    for (int32_t each = 0; each < f->constants; each++)
        there |= f->constant[each].which == which;
    return there;
}

/* Make one of two fragments and the value between them, to be tried behind `before` in their place. */
static void join_fragments(scan *s, fragment *before, fragment *first, known_value *value, const fragment *second)
{
    int32_t between = value ? value->size - 1 : 0, size = first->size + between + second->size;
    first->visits = 0;
    if (value)
        value->hits = 0;
    if (size > FRAGMENT_BYTES || first->constants + second->constants >= MOST_CONSTANTS || before->next[GUESSES - 2]
        || s->fragments == MOST_FRAGMENTS || (holds(first, ARGS) && holds(second, ARGS)))
        return;
    fragment *joint = s->fragment + s->fragments++;
    memcpy(joint, first, sizeof *joint);
    if (value)
        memcpy(joint->bytes + first->size, value->bytes, (size_t)between);
    memcpy(joint->bytes + first->size + between, second->bytes, (size_t)second->size);
    if (value && first->which != NO_MEMBER && first->which != NO_COLUMN)
        add_constant(joint, first->size, between, first->which, value->number);
    for (int32_t each = 0; each < second->constants; each++) {
        const constant *own = second->constant + each;
        add_constant(joint, first->size + between + own->at, own->size, own->which, own->number);
    }
    joint->size = size;
    joint->which = second->which;
    joint->place = second->place;
    joint->patience = MOST_PATIENCE;
    memset(joint->value, 0, sizeof joint->value);
    memcpy(joint->next, second->next, sizeof joint->next);
    let_follow(before, joint);
}

/* --- events */

/* Whether a value is a text of ASCII without escapes. */
static int is_plain_text(const uint8_t *value, int64_t size)
{
    if (value[0] != '"')
        return 0;
    for (int64_t at = 1; at < size; at++)
        if (value[at] >= 0x80 || value[at] == '\\')
            return 0;
    return 1;
}

/* 0 for arguments that are there twice: which count is for the slower reader to say. */
static inline int take_value(event_values *event, int which, span value)
{
    int is_twice = which == ARGS && event->there >> ARGS & 1;
    event->value[which] = value;
    event->there |= UINT32_C(1) << which;
    return !is_twice;
}

/* Take the values inside of the fragment at `at`. */
static inline int take_constants(event_values *event, fragment *f, int64_t at)
{
    int is_event = 1;
    for (constant *each = f->constant; each < f->constant + f->constants; each++)
        is_event &= take_value(event, each->which, (span){at + each->at, each->size, &each->number});
    return is_event;
}

/* A value of an event, of no size where there is none. */
static inline span value_of(const event_values *event, int which)
{
    return event->there >> which & 1 ? event->value[which] : (span){0, 0, NULL};
}

/* Whether the members are of the types that an event has: its phase is a text that needs no decoding, its category and name are
   texts or null. */
static int is_event(const uint8_t *text, const event_values *event)
{
    span phase = value_of(event, PH);
    if (phase.size && !is_plain_text(text + phase.at, phase.size))
        return 0;
    for (int which = CAT; which <= NAME_; which++) {
        span word = value_of(event, which);
        if (word.size && text[word.at] != '"' && text[word.at] != 'n')
            return 0;
    }
    return 1;
}

/* The number of an arrow, in quotes or not; below NO_NUMBER for what is no number but tells arrows apart. */
static int64_t flow_number(const uint8_t *text, int64_t size)
{
    if (size >= 2 && text[0] == '"') {
        text++;
        size -= 2;
    }
    int64_t number = whole_number(text, size);
    return number == NO_NUMBER ? (int64_t)(hash_of(text, size) >> 2 | UINT64_C(1) << 63) : number;
}

/* --- rows */

static int widen(void **column, int64_t room, size_t each)
{
    return column_widen(column, (size_t)room * each);
}

static int rows_widen(row_set *rows)
{
    int64_t room = rows->room * 2 + 4096;
    int32_t **numbered[] = {&rows->event, &rows->category, &rows->name, &rows->track};
    int64_t **timed[] = {&rows->start, &rows->duration};
    int done = widen((void **)&rows->phase, room, 1);
    for (int column = 0; done && column < 4; column++)
        done = widen((void **)numbered[column], room, sizeof(int32_t));
    for (int column = 0; done && column < 2; column++)
        done = widen((void **)timed[column], room, sizeof(int64_t));
    if (done)
        rows->room = room;
    return done;
}

static int sparse_widen(sparse_column *column, size_t each)
{
    int64_t room = column->room * 2 + 1024;
    if (!widen((void **)&column->row, room, sizeof(int32_t)) || !widen(&column->value, room, each))
        return 0;
    column->room = room;
    return 1;
}

static int put_number(sparse_column *column, int64_t row, int64_t number)
{
    if (number == NO_NUMBER)
        return 1;
    if (column->count == column->room && !sparse_widen(column, sizeof number))
        return 0;
    column->row[column->count] = (int32_t)row;
    ((int64_t *)column->value)[column->count++] = number;
    return 1;
}

/* The number of a text as it is written, -1 where there is none or it is null; -2 where memory is short. */
static inline int32_t numbered(scan *s, const uint8_t *text, span where)
{
    if (!where.size || text[where.at] == 'n')
        return -1;
    if (where.number && *where.number >= 0)
        return *where.number;
    int32_t number = number_of(&s->texts, text + where.at, where.size);
    if (number < 0)
        return -2;
    if (where.number)
        *where.number = number;
    return number;
}

/* Room for one more odd time; NULL where memory is short. */
static odd_time *odd_room(scan *s)
{
    if (s->odd_count == s->odd_room) {
        int64_t room = s->odd_room * 2 + 64;
        if (!widen((void **)&s->odd, room, sizeof(odd_time)))
            return NULL;
        s->odd_room = room;
    }
    return s->odd + s->odd_count;
}

static int64_t time_of(scan *s, const uint8_t *text, span where, int member)
{
    if (!where.size)
        return ABSENT;
    int64_t time = nanoseconds(text + where.at, where.size);
    if (time != ODD_TIME)
        return time;
    int32_t number = number_of(&s->texts, text + where.at, where.size);
    if (!odd_room(s) || number < 0) {
        s->is_short_of_memory = 1;
        return ABSENT;
    }
    s->odd[s->odd_count++] = (odd_time){(int32_t)s->events, member, number};
    return ODD_TIME;
}

static inline int set_of(uint8_t phase)
{
    return phase == 'X' ? COMPLETE : phase == 's' || phase == 't' || phase == 'f' ? ARROWS : OTHERS;
}

/* The number of the pair of process and thread; -2 where memory is short. */
static inline int32_t track_of(scan *s, const uint8_t *text, const event_values *event)
{
    int32_t pair[2] = {numbered(s, text, value_of(event, PID)), numbered(s, text, value_of(event, TID))};
    if (pair[0] == -2 || pair[1] == -2)
        return -2;
    if (!s->tracks.count || memcmp(s->pair, pair, sizeof pair)) {
        int32_t track = number_of(&s->tracks, (const uint8_t *)pair, sizeof pair);
        if (track < 0)
            return -2;
        memcpy(s->pair, pair, sizeof pair);
        s->track = track;
    }
    return s->track;
}

static int keep_arguments(scan *s, row_set *rows, const uint8_t *text, const event_values *event)
{
    for (uint32_t columns = event->there >> FIRST_COLUMN; columns; columns &= columns - 1) {
        int which = __builtin_ctz(columns);
        span value = event->value[FIRST_COLUMN + which];
        sparse_column *column = &rows->argument[which];
        if (s->is_number[which]) {
            if (!put_number(column, rows->count, whole_number(text + value.at, value.size)))
                return 0;
            continue;
        }
        int32_t number = numbered(s, text, value);
        if (number == -1)
            continue;
        if (number == -2 || (column->count == column->room && !sparse_widen(column, sizeof number)))
            return 0;
        column->row[column->count] = (int32_t)rows->count;
        ((int32_t *)column->value)[column->count++] = number;
    }
    return 1;
}

static int keep_row(scan *s, const uint8_t *text, event_values *event)
{
    span ph = value_of(event, PH), id = value_of(event, ID);
    uint8_t phase = ph.size == 3 ? text[ph.at + 1] : 0;
    int set = set_of(phase);
    row_set *rows = &s->rows[set];
    if (s->events == MOST_ROWS)
        return 0;
    int32_t category = numbered(s, text, value_of(event, CAT)), track = track_of(s, text, event);
    int32_t name = set == ARROWS ? -1 : numbered(s, text, value_of(event, NAME_)); /* which may differ from one to the next */
    if (category == -2 || name == -2 || track == -2)
        return 0;
    if (!(s->kept >> set & 1)) {
        s->events++;
        return 1;
    }
    if (rows->count == rows->room && !rows_widen(rows))
        return 0;
    int64_t row = rows->count;
    rows->phase[row] = phase;
    rows->event[row] = (int32_t)s->events;
    rows->category[row] = category;
    rows->name[row] = name;
    rows->track[row] = track;
    rows->start[row] = time_of(s, text, value_of(event, TS), TS);
    rows->duration[row] = time_of(s, text, value_of(event, DUR), DUR);
    if (s->is_short_of_memory)
        return 0;
    if (id.size && !put_number(&rows->flow, row, flow_number(text + id.at, id.size)))
        return 0;
    if (phase == 'C' && s->counters >= 0) {
        span all = value_of(event, ARGS);
        event->value[FIRST_COLUMN + s->counters] = (span){all.at, all.size, NULL};
        event->there |= UINT32_C(1) << (FIRST_COLUMN + s->counters);
    }
    if (!keep_arguments(s, rows, text, event))
        return 0;
    rows->count++;
    s->events++;
    return 1;
}

/* --- the scanner, for each instruction set */

#if defined(__x86_64__)
#define NAME(function) function##_avx2
#define WIDE 32
#define TARGET __attribute__((target("avx2,bmi")))
#include "core.h"
#endif

#define NAME(function) function##_plain
#define TARGET
#if defined(__SSE2__) || defined(__ARM_NEON)
#define WIDE 16
#else
#define WIDE 1
#endif
#include "core.h"

/* --- what is called from outside */

int scan_version(void)
{
    return VERSION;
}

static void rows_free(row_set *rows, int arguments)
{
    void *columns[] = {rows->phase, rows->event, rows->category, rows->name, rows->track, rows->start, rows->duration,
                       rows->flow.row, rows->flow.value};
    for (size_t column = 0; column < sizeof columns / sizeof *columns; column++)
        column_free(columns[column]);
    for (int column = 0; column < arguments; column++) {
        column_free(rows->argument[column].row);
        column_free(rows->argument[column].value);
    }
}

void scan_free(scan *s)
{
    if (!s)
        return;
    for (int set = 0; set < SETS; set++)
        rows_free(&s->rows[set], s->arguments);
    for (int column = 0; column < s->arguments; column++)
        free(s->key[column]);
    column_free(s->odd);
    texts_free(&s->texts);
    texts_free(&s->tracks);
    free(s);
}

/* A scan that takes the arguments of these keys, as whole numbers or as texts; NULL where memory is short. The key of no letters
   stands for all arguments of a counter, as one text. */
scan *scan_new(const char *const *keys, const uint8_t *is_number, int32_t count)
{
    scan *s = calloc(1, sizeof *s);
    if (!s || count > MOST_ARGUMENTS || !texts_begin(&s->texts) || !texts_begin(&s->tracks)) {
        scan_free(s);
        return NULL;
    }
    s->counters = -1;
    s->kept = (1 << SETS) - 1;
    for (int32_t column = 0; column < count; column++) {
        s->key_size[column] = (int64_t)strlen(keys[column]);
        s->counters = s->key_size[column] ? s->counters : column;
        s->key[column] = malloc((size_t)s->key_size[column] + 1);
        s->arguments = column + 1;
        if (!s->key[column]) {
            scan_free(s);
            return NULL;
        }
        memcpy(s->key[column], keys[column], (size_t)s->key_size[column] + 1);
        s->is_number[column] = is_number[column];
    }
    for (s->fragments = 0; s->fragments < PLACES; s->fragments++)
        fill_fragment(s->fragment + s->fragments, 0, NO_VALUE, s->fragments);
    return s;
}

/* Begin anew, for the events of these sets alone, a bit for each: texts and tracks keep their numbers. */
void scan_begin(scan *s, int32_t sets)
{
    for (int set = 0; set < SETS; set++)
        rows_free(&s->rows[set], s->arguments);
    memset(s->rows, 0, sizeof s->rows);
    s->events = s->odd_count = 0;
    s->kept = sets;
}

/* The caller is done with a column that it took over. */
void column_release(void *column)
{
    column_free(column);
}

/* Take the events that begin before `stop`; where the scan ended, and in `state` why. `first` says that no comma stands before
   the first of them. Needs no lock of Python's. */
int64_t scan_take(scan *s, const uint8_t *text, int64_t size, int64_t at, int64_t stop, int first, int may_be_wide)
{
#if defined(__x86_64__)
    if (may_be_wide && __builtin_cpu_supports("avx2"))
        return take_events_avx2(s, text, size, at, stop, first);
#endif
    (void)may_be_wide;
    return take_events_plain(s, text, size, at, stop, first);
}
