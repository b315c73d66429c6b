/* What the decoders of MariaDB's and MySQL's rows share: columns, a buffer that grows, and values in it. */

#ifndef HEADRACE_IMAGES_H
#define HEADRACE_IMAGES_H

#include "json_text.h"

/* How a column's bytes become JSON (edge/mysql/column_codec.py). */
enum {
    LEFT_OUT = '-',
    SIGNED = 'i',    /* Little-endian. */
    UNSIGNED = 'u',
    DECIMAL = 'd',   /* Groups of nine digits, big-endian, the odd digits outermost. */
    FLOAT = 'f',
    DOUBLE = 'g',
    YEAR = 'y',
    DATE = 'D',
    DATETIME = 'm',
    TIMESTAMP = 's',
    TIME = 'h',
    BITS = 'b',
    ENUM = 'e',      /* By the members' JSON; an empty one is none. */
    SET = 'S',       /* By the members' JSON without quotes. */
    TEXT = 't',      /* UTF-8. */
    LETTERS = 'l',   /* By the JSON of each byte; an empty one is none. */
    BINARY = 'x',
    UUID = 'U',
};

/* Bytes that are there for a value of a fixed size, and for what is around one. */
enum { ROOM = 96 };

typedef struct {
    Span name; /* As JSON, with its colon. */
    char form;
    char is_sized; /* Whether its length is ahead of its value, in `size` bytes; else the value has that size. */
    uint16_t size;
    uint16_t length; /* Digits of a decimal, or of a second's fraction; bits; the size to which zeros are added. */
    uint16_t scale;
    Span *members;
    Py_ssize_t count;
} Column;

typedef struct {
    char *begin, *out, *end;
} Buffer;

/* Results of functions that write into a buffer. */
enum { NO_MEMORY = -1, UNUSUAL = 0, DONE = 1 };

/* Lets at least so many bytes be written. */
static inline int reserve(Buffer *buffer, Py_ssize_t size)
{
    Py_ssize_t held = buffer->out - buffer->begin, room = buffer->end - buffer->begin;
    char *begin;
    if (buffer->end - buffer->out >= size)
        return DONE;
    if (size > PY_SSIZE_T_MAX / 4 - held)
        return NO_MEMORY;
    room = room * 2 > held + size ? room * 2 : held + size;
    begin = PyMem_Realloc(buffer->begin, (size_t)room);
    if (!begin)
        return NO_MEMORY;
    *buffer = (Buffer){begin, begin + held, begin + room};
    return DONE;
}

static inline uint64_t little(const unsigned char *at, int size)
{
    uint64_t value = 0;
    while (size--)
        value = value << 8 | at[size];
    return value;
}

static inline char *put_number(char *out, uint64_t value)
{
    char digits[20];
    int at = sizeof digits;
    do
        digits[--at] = (char)('0' + value % 10);
    while (value /= 10);
    return put(out, digits + at, (Py_ssize_t)sizeof digits - at);
}

/* Writes a value's JSON, for which ROOM bytes are there. */
int put_value(Buffer *buffer, const Column *column, const unsigned char *at, Py_ssize_t size);

/* Whether a column may be so described. */
int is_possible(const Column *column);

#endif
