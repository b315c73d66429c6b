/* Values of row images as JSON: what edge/mysql/column_codec.py and edge/mysql/values.py make of them. */

#include "images.h"

enum { MOST_IN_GROUP = 9, UUID_SIZE = 16 };

static const uint32_t POWERS[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000};
/* Bytes that so many digits take. */
static const unsigned char DIGIT_BYTES[] = {0, 1, 1, 2, 2, 3, 3, 4, 4, 4};

static uint64_t big(const unsigned char *at, int size)
{
    uint64_t value = 0;
    while (size--)
        value = value << 8 | *at++;
    return value;
}

/* A number with so many digits. */
static char *put_digits(char *out, uint32_t value, int digits)
{
    for (int at = digits; at--; value /= 10)
        out[at] = (char)('0' + value % 10);
    return out + digits;
}

static char *put_signed(char *out, const unsigned char *at, int size)
{
    int64_t value = (int64_t)(little(at, size) << (64 - 8 * size)) >> (64 - 8 * size);
    if (value < 0)
        *out++ = '-';
    return put_number(out, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

/* A group of digits without its sign; NULL where it has more. */
static char *put_group(char *out, const unsigned char *at, int digits, unsigned char flip, unsigned char first, int *begun)
{
    uint32_t value = 0;
    for (int byte = 0; byte < DIGIT_BYTES[digits]; byte++)
        value = value << 8 | (unsigned char)(at[byte] ^ flip ^ (byte ? 0 : first));
    if (value >= POWERS[digits])
        return NULL;
    if (*begun)
        return put_digits(out, value, digits);
    if (!value)
        return out;
    *begun = 1;
    return put_number(out, value);
}

static char *put_decimal(char *out, const Column *column, const unsigned char *at)
{
    int whole = column->length - column->scale, scale = column->scale, begun = 0;
    int digits = whole % MOST_IN_GROUP;
    unsigned char flip = *at & 0x80 ? 0 : 0xFF, first = 0x80;
    *out++ = '"';
    if (flip)
        *out++ = '-';
    for (int left = whole; left > 0; left -= digits, digits = MOST_IN_GROUP) {
        if (!digits)
            digits = MOST_IN_GROUP;
        out = put_group(out, at, digits, flip, first, &begun);
        if (!out)
            return NULL;
        at += DIGIT_BYTES[digits];
        first = 0;
    }
    if (!begun)
        *out++ = '0';
    begun = 1;
    if (scale)
        *out++ = '.';
    for (; scale > 0; scale -= digits) {
        digits = scale > MOST_IN_GROUP ? MOST_IN_GROUP : scale;
        out = put_group(out, at, digits, flip, first, &begun);
        if (!out)
            return NULL;
        at += DIGIT_BYTES[digits];
        first = 0;
    }
    *out++ = '"';
    return out;
}

/* The shortest number that is this one in double precision; NULL with an error where there is no memory. */
static char *put_double(char *out, double value)
{
    /* A whole number has no point, but for 0. */
    char *text = PyOS_double_to_string(value, 'r', 0, value ? 0 : Py_DTSF_ADD_DOT_0, NULL);
    if (!text)
        return NULL;
    out = put(out, text, (Py_ssize_t)strlen(text));
    PyMem_Free(text);
    return out;
}

static char *put_float(char *out, float value)
{
    for (int digits = 6; digits < 10; digits++) {
        char *text = PyOS_double_to_string(value, 'g', digits, 0, NULL);
        double shorter;
        if (!text)
            return NULL;
        shorter = PyOS_string_to_double(text, NULL, NULL);
        PyMem_Free(text);
        if (shorter == -1.0 && PyErr_Occurred())
            return NULL;
        if ((float)shorter == value)
            return put_double(out, shorter);
    }
    return NULL;
}

static int put_number_with_point(Buffer *buffer, const Column *column, const unsigned char *at)
{
    char *out;
    double wide;
    float single;
    if (column->form == FLOAT) {
        uint32_t bits = (uint32_t)little(at, 4);
        memcpy(&single, &bits, 4);
        wide = single;
    } else {
        uint64_t bits = little(at, 8);
        memcpy(&wide, &bits, 8);
    }
    /* No number, or none that is finite. */
    if (wide - wide != 0)
        return UNUSUAL;
    out = column->form == FLOAT ? put_float(buffer->out, single) : put_double(buffer->out, wide);
    if (!out)
        return PyErr_Occurred() ? NO_MEMORY : UNUSUAL;
    buffer->out = out;
    return DONE;
}

static char *put_date(char *out, uint32_t year, uint32_t month, uint32_t day)
{
    if (year > 9999 || month > 12)
        return NULL;
    out = put_digits(out, year, 4);
    *out++ = '-';
    out = put_digits(out, month, 2);
    *out++ = '-';
    return put_digits(out, day, 2);
}

static char *put_clock(char *out, uint32_t hour, uint32_t minute, uint32_t second, uint32_t most)
{
    if (hour > most || minute > 59 || second > 59)
        return NULL;
    out = put_digits(out, hour, hour > 99 ? 3 : 2);
    *out++ = ':';
    out = put_digits(out, minute, 2);
    *out++ = ':';
    return put_digits(out, second, 2);
}

/* A second's fraction; the log has an even number of digits. */
static char *put_fraction(char *out, uint64_t value, int digits)
{
    if (!digits)
        return out;
    if (digits & 1)
        value /= 10;
    if (value >= POWERS[digits])
        return NULL;
    *out++ = '.';
    return put_digits(out, (uint32_t)value, digits);
}

static char *put_datetime(char *out, const Column *column, const unsigned char *at)
{
    uint64_t number = big(at, 5);
    uint32_t month = (uint32_t)(number >> 22 & 0x1FFFF), day = (uint32_t)number >> 17 & 31;
    if (number < UINT64_C(0x8000000000) || !(out = put_date(out, month / 13, month % 13, day)))
        return NULL;
    *out++ = month / 13 && month % 13 && day ? 'T' : ' ';
    out = put_clock(out, (uint32_t)number >> 12 & 31, (uint32_t)number >> 6 & 63, (uint32_t)number & 63, 23);
    return out ? put_fraction(out, big(at + 5, column->size - 5), column->length) : NULL;
}

/* Days since 1970 as a date (Hinnant, "chrono-Compatible Low-Level Date Algorithms"). */
static char *put_day(char *out, uint32_t days)
{
    uint32_t shifted = days + 719468, era = shifted / 146097, of_era = shifted % 146097;
    uint32_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    uint32_t of_year = of_era - (365 * year + year / 4 - year / 100), month = (5 * of_year + 2) / 153;
    uint32_t day = of_year - (153 * month + 2) / 5 + 1;
    month += month < 10 ? 3 : (uint32_t)-9;
    return put_date(out, year + era * 400 + (month < 3), month, day);
}

static char *put_timestamp(char *out, const Column *column, const unsigned char *at)
{
    uint32_t seconds = (uint32_t)big(at, 4), of_day = seconds % 86400;
    if (seconds) {
        out = put_day(out, seconds / 86400);
        *out++ = 'T';
        out = put_clock(out, of_day / 3600, of_day / 60 % 60, of_day % 60, 23);
    } else {
        out = put(out, "0000-00-00 00:00:00", 19);
    }
    out = put_fraction(out, big(at + 4, column->size - 4), column->length);
    if (out && seconds)
        *out++ = 'Z';
    return out;
}

static char *put_time(char *out, const Column *column, const unsigned char *at)
{
    int bits = 8 * (column->size - 3);
    int64_t number = (int64_t)big(at, column->size) - ((int64_t)0x800000 << bits);
    uint32_t whole;
    if (number < 0) {
        *out++ = '-';
        number = -number;
    }
    whole = (uint32_t)(number >> bits);
    out = put_clock(out, whole >> 12, whole >> 6 & 63, whole & 63, 838);
    return out ? put_fraction(out, (uint64_t)number & ((UINT64_C(1) << bits) - 1), column->length) : NULL;
}

static char *put_bits(char *out, const Column *column, const unsigned char *at)
{
    uint64_t value = big(at, column->size);
    if (column->length < 64 && value >> column->length)
        return NULL;
    for (int bit = column->length; bit--;)
        *out++ = value >> bit & 1 ? '1' : '0';
    return out;
}

/* A value of a fixed size between quotes. */
static int put_quoted(Buffer *buffer, const Column *column, const unsigned char *at)
{
    char *out = buffer->out;
    uint32_t date;
    *out++ = '"';
    switch (column->form) {
    case DATE:
        date = (uint32_t)little(at, 3);
        out = put_date(out, date >> 9, date >> 5 & 15, date & 31);
        break;
    case DATETIME:
        out = put_datetime(out, column, at);
        break;
    case TIMESTAMP:
        out = put_timestamp(out, column, at);
        break;
    case TIME:
        out = put_time(out, column, at);
        break;
    default:
        out = put_bits(out, column, at);
    }
    if (!out)
        return UNUSUAL;
    *out++ = '"';
    buffer->out = out;
    return DONE;
}

static int put_members(Buffer *buffer, const Column *column, const unsigned char *at)
{
    uint64_t value = little(at, column->size);
    char separator = '"';
    if (column->form == ENUM) {
        if (value >= (uint64_t)column->count || !column->members[value].size)
            return UNUSUAL;
        if (reserve(buffer, column->members[value].size + ROOM) < 0)
            return NO_MEMORY;
        buffer->out = put_span(buffer->out, column->members[value]);
        return DONE;
    }
    if (column->count < 64 && value >> column->count)
        return UNUSUAL;
    for (Py_ssize_t each = 0; each < column->count; each++)
        if (value >> each & 1) {
            if (reserve(buffer, column->members[each].size + ROOM) < 0)
                return NO_MEMORY;
            *buffer->out++ = separator;
            buffer->out = put_span(buffer->out, column->members[each]);
            separator = ',';
        }
    if (separator == '"')
        *buffer->out++ = '"';
    *buffer->out++ = '"';
    return DONE;
}

static int put_text(Buffer *buffer, const unsigned char *text, Py_ssize_t size)
{
    Py_ssize_t inner = escaped_size(text, size);
    if (inner < 0)
        return UNUSUAL;
    if (reserve(buffer, inner + ROOM) < 0)
        return NO_MEMORY;
    *buffer->out++ = '"';
    buffer->out = inner == size ? put(buffer->out, text, size) : put_escaped(buffer->out, text, size);
    *buffer->out++ = '"';
    return DONE;
}

static int put_letters(Buffer *buffer, const Column *column, const unsigned char *text, Py_ssize_t size)
{
    Py_ssize_t inner = 0;
    for (Py_ssize_t at = 0; at < size; at++) {
        if (!column->members[text[at]].size)
            return UNUSUAL;
        inner += column->members[text[at]].size;
    }
    if (reserve(buffer, inner + ROOM) < 0)
        return NO_MEMORY;
    *buffer->out++ = '"';
    for (Py_ssize_t at = 0; at < size; at++)
        buffer->out = put_span(buffer->out, column->members[text[at]]);
    *buffer->out++ = '"';
    return DONE;
}

/* Bytes, with zeros behind them that the log leaves out, as base64. */
static int put_binary(Buffer *buffer, const Column *column, const unsigned char *bytes, Py_ssize_t size)
{
    Py_ssize_t whole = size > column->length ? size : column->length;
    if (reserve(buffer, (whole + 2) / 3 * 4 + ROOM) < 0)
        return NO_MEMORY;
    *buffer->out++ = '"';
    for (Py_ssize_t at = 0; at < whole; at += 3) {
        unsigned group = 0;
        for (Py_ssize_t each = at; each < at + 3; each++)
            group = group << 8 | (each < size ? bytes[each] : 0u);
        buffer->out = put_base64_group(buffer->out, group, whole - at > 3 ? 3 : (int)(whole - at));
    }
    *buffer->out++ = '"';
    return DONE;
}

static int put_uuid(Buffer *buffer, const unsigned char *bytes, Py_ssize_t size)
{
    char *out = buffer->out;
    if (size > UUID_SIZE)
        return UNUSUAL;
    *out++ = '"';
    for (int at = 0; at < UUID_SIZE; at++) {
        unsigned byte = at < size ? bytes[at] : 0u;
        if (at == 4 || at == 6 || at == 8 || at == 10)
            *out++ = '-';
        *out++ = HEXADECIMAL[byte >> 4];
        *out++ = HEXADECIMAL[byte & 15];
    }
    *out++ = '"';
    buffer->out = out;
    return DONE;
}

int put_value(Buffer *buffer, const Column *column, const unsigned char *at, Py_ssize_t size)
{
    char *out;
    switch (column->form) {
    case SIGNED:
        buffer->out = put_signed(buffer->out, at, column->size);
        return DONE;
    case UNSIGNED:
        buffer->out = put_number(buffer->out, little(at, column->size));
        return DONE;
    case YEAR:
        buffer->out = put_number(buffer->out, *at ? *at + 1900u : 0);
        return DONE;
    case DECIMAL:
        out = put_decimal(buffer->out, column, at);
        buffer->out = out ? out : buffer->out;
        return out ? DONE : UNUSUAL;
    case FLOAT:
    case DOUBLE:
        return put_number_with_point(buffer, column, at);
    case DATE:
    case DATETIME:
    case TIMESTAMP:
    case TIME:
    case BITS:
        return put_quoted(buffer, column, at);
    case ENUM:
    case SET:
        return put_members(buffer, column, at);
    case TEXT:
        return put_text(buffer, at, size);
    case LETTERS:
        return put_letters(buffer, column, at, size);
    case BINARY:
        return put_binary(buffer, column, at, size);
    case UUID:
        return put_uuid(buffer, at, size);
    default:
        return UNUSUAL;
    }
}

int is_possible(const Column *column)
{
    int whole = column->length - column->scale, size = column->size;
    switch (column->form) {
    case LEFT_OUT:
        return size >= 1 && (!column->is_sized || size <= 4);
    case TEXT:
    case BINARY:
    case UUID:
        return column->is_sized && size >= 1 && size <= 4;
    case LETTERS:
        return column->is_sized && size >= 1 && size <= 4 && column->count == 256;
    }
    if (column->is_sized)
        return 0;
    switch (column->form) {
    case SIGNED:
    case UNSIGNED:
        return size >= 1 && size <= 8;
    case DECIMAL:
        return column->length >= 1 && column->length <= 65 && column->scale <= 38 && whole >= 0 &&
               size == whole / 9 * 4 + DIGIT_BYTES[whole % 9] + column->scale / 9 * 4 + DIGIT_BYTES[column->scale % 9];
    case FLOAT:
        return size == 4;
    case DOUBLE:
        return size == 8;
    case YEAR:
        return size == 1;
    case DATE:
        return size == 3;
    case DATETIME:
        return column->length <= 6 && size == 5 + (column->length + 1) / 2;
    case TIMESTAMP:
        return column->length <= 6 && size == 4 + (column->length + 1) / 2;
    case TIME:
        return column->length <= 6 && size == 3 + (column->length + 1) / 2;
    case BITS:
        return column->length >= 1 && column->length <= 64 && size == (column->length + 7) / 8;
    case ENUM:
        return size == 1 || size == 2;
    case SET:
        return size >= 1 && size <= 8 && column->count <= 64;
    default:
        return 0;
    }
}
