/* What the decoders of PostgreSQL's rows share: a plan, and what it makes of columns that were measured. */

#ifndef HEADRACE_PLAN_H
#define HEADRACE_PLAN_H

#include "json_text.h"

/* How a column's text becomes JSON (edge/postgres/values.py). */
enum {
    LEFT_OUT = '-',    /* Not in records. */
    ABSENT = '0',      /* Not in records, and null in the log: outside of the key in a tuple that has the key alone. */
    NUMBER = 'n',      /* As it is. */
    FLOAT = 'f',       /* As it is, unless it is no number of JSON. */
    BOOLEAN = 'b',     /* t, f. */
    BINARY = 'x',      /* Hexadecimal, to base64. */
    PLAIN = 'p',       /* Quoted: nothing in it is to be escaped. */
    TIMESTAMP = 't',   /* ISO 8601 with a T. */
    TIMESTAMPTZ = 'z', /* ISO 8601 with T and Z. */
    TEXT = 'e',        /* UTF-8, escaped. */
};

enum { HEAD = 8, PAD = 4, PARTS = 5, MOST_CONSTANTS = 6, FIELDS = 256 };

typedef struct {
    Span name; /* As JSON, with its colon. */
    char form;
} Column;

/* A column of a message. */
typedef struct {
    const unsigned char *text; /* NULL for null. */
    Py_ssize_t size;
    Py_ssize_t written; /* The size of its JSON. */
    Py_ssize_t at;      /* Where name and JSON begin in the value. */
} Field;

typedef struct {
    PyObject_HEAD
    PyObject *exact;   /* Decodes any message. */
    PyObject *names;   /* Owns the bytes of the columns' names. */
    PyObject *pieces;  /* Owns the bytes of the constants. */
    Py_ssize_t tuples; /* In a message: one or two. */
    Py_ssize_t width;  /* Columns of a tuple. */
    Column *columns;   /* Of all tuples. */
    Py_ssize_t keys;   /* Columns of the key; -1 for none. */
    Py_ssize_t *key;   /* Their numbers in the last tuple. */
    Span constants[MOST_CONSTANTS];
} Plan;

static inline int is_held(char form)
{
    return form != LEFT_OUT && form != ABSENT;
}

/* The size of a text's JSON; -1 for an unusual one. */
Py_ssize_t json_size(char form, const unsigned char *text, Py_ssize_t size);

/* Key and value of columns that are measured, of so many bytes, and what comes from the transaction; -1 with an error where there
   is no memory, 0 for too many bytes. */
int write_both(const Plan *plan, Field *fields, const Span *parts, uint64_t total, PyObject **key, PyObject **value);

/* The size of a record without its rows. */
uint64_t size_around(const Plan *plan, const Span *parts);

PyObject *copy_rows(PyObject *object, PyObject *arguments);

#endif
