/* What the decoders in C share: texts and bytes as they are between the quotes of JSON. */

#ifndef HEADRACE_JSON_TEXT_H
#define HEADRACE_JSON_TEXT_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* A text may grow to six times its size, which is counted in this type. Elsewhere Python does it. */
_Static_assert(sizeof(Py_ssize_t) >= 8, "row_json is for 64-bit systems");

typedef struct {
    const char *bytes;
    Py_ssize_t size;
} Span;

/* How many bytes escaping adds to a byte of a text; 255 for one of several bytes. */
extern unsigned char grows_by[256];
/* The value of a hexadecimal digit; -1 for another character. */
extern signed char digit_of[256];
extern const char HEXADECIMAL[];
extern const char BASE64[];

/* The types of the module. */
extern PyType_Spec plan_spec, images_spec;

/* Whether eight bytes need no escape and are ASCII. */
static inline int are_ordinary(const unsigned char *text)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t word, quotes, backslashes;
    memcpy(&word, text, 8);
    quotes = word ^ ones * '"';
    backslashes = word ^ ones * '\\';
    return !((word | (word - ones * 0x20) | (quotes - ones) | (backslashes - ones)) & ones * 0x80);
}

static inline int continues(unsigned char byte)
{
    return (byte & 0xC0) == 0x80;
}

/* The size of the character of several bytes that begins here; 0 for none (Unicode, table 3-7). */
static inline Py_ssize_t character(const unsigned char *text, Py_ssize_t left)
{
    unsigned char first = text[0];
    if (first < 0xC2 || left < 2 || !continues(text[1]))
        return 0;
    if (first < 0xE0)
        return 2;
    if (left < 3 || !continues(text[2]))
        return 0;
    if (first < 0xF0)
        return (first == 0xE0 && text[1] < 0xA0) || (first == 0xED && text[1] > 0x9F) ? 0 : 3;
    if (left < 4 || !continues(text[3]) || first > 0xF4)
        return 0;
    return (first == 0xF0 && text[1] < 0x90) || (first == 0xF4 && text[1] > 0x8F) ? 0 : 4;
}

/* The size of a text between the quotes of JSON; -1 where it is no UTF-8. */
static inline Py_ssize_t escaped_size(const unsigned char *text, Py_ssize_t size)
{
    Py_ssize_t at = 0, more = 0, length;
    while (at < size) {
        if (size - at >= 8 && are_ordinary(text + at)) {
            at += 8;
        } else if (grows_by[text[at]] != 255) {
            more += grows_by[text[at++]];
        } else if ((length = character(text + at, size - at))) {
            at += length;
        } else {
            return -1;
        }
    }
    return size + more;
}

static inline char *put(char *out, const void *bytes, Py_ssize_t size)
{
    memcpy(out, bytes, (size_t)size);
    return out + size;
}

static inline char *put_escaped(char *out, const unsigned char *text, Py_ssize_t size)
{
    for (Py_ssize_t at = 0; at < size; at++) {
        unsigned char byte = text[at];
        switch (byte < 0x80 ? grows_by[byte] : 0) {
        case 0:
            *out++ = (char)byte;
            break;
        case 1:
            *out++ = '\\';
            *out++ = byte == '\b' ? 'b' : byte == '\t' ? 't' : byte == '\n' ? 'n' : byte == '\f' ? 'f' : byte == '\r' ? 'r' : (char)byte;
            break;
        default:
            out = put(out, "\\u00", 4);
            *out++ = HEXADECIMAL[byte >> 4];
            *out++ = HEXADECIMAL[byte & 15];
        }
    }
    return out;
}

static inline char *put_span(char *out, Span span)
{
    return put(out, span.bytes, span.size);
}

/* Up to three bytes as four characters. */
static inline char *put_base64_group(char *out, unsigned bits, int bytes)
{
    *out++ = BASE64[bits >> 18];
    *out++ = BASE64[bits >> 12 & 63];
    *out++ = bytes > 1 ? BASE64[bits >> 6 & 63] : '=';
    *out++ = bytes > 2 ? BASE64[bits & 63] : '=';
    return out;
}

/* Fills a span with the bytes at a place of a tuple; -1 with an error where others are there. */
static inline int take_bytes(PyObject *tuple, Py_ssize_t each, Span *span)
{
    PyObject *item = PyTuple_GetItem(tuple, each);
    if (!item || PyBytes_AsStringAndSize(item, (char **)&span->bytes, &span->size) < 0)
        return -1;
    return 0;
}

#endif
