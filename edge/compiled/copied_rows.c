/* Rows as PostgreSQL's COPY prints them as keys and values in JSON: what edge/postgres/rows_compiled.py makes of them, many in a
   call. A row that holds anything that is not ordinary ends it: Python takes that one. Plans are those of Insert messages. */

#include "plan.h"

#include <stdio.h>

/* Memory for texts with escapes, as they are without. */
typedef struct {
    unsigned char *begin, *out;
    Py_ssize_t size;
} Scratch;

/* Takes the escapes out of a text; returns its size, -1 where the last one is cut. */
static Py_ssize_t unescape(unsigned char *out, const unsigned char *text, Py_ssize_t size)
{
    const unsigned char *end = text + size, *begin = out;
    while (text < end) {
        unsigned char byte = *text++;
        if (byte == '\\') {
            if (text == end)
                return -1;
            byte = *text++;
            byte = byte == 'b' ? '\b' : byte == 'f' ? '\f' : byte == 'n' ? '\n' : byte == 'r' ? '\r' : byte == 't' ? '\t' :
                   byte == 'v' ? '\v' : byte;
        }
        *out++ = byte;
    }
    return out - begin;
}

/* Measures a row: columns between tabs, \N for null. Returns the size of its JSON; 0 for an unusual one. */
static uint64_t measure(const Plan *plan, Span row, Scratch *scratch, Field *fields)
{
    const unsigned char *at = (const unsigned char *)row.bytes, *end = at + row.size;
    int has_escapes = memchr(at, '\\', (size_t)row.size) != NULL;
    uint64_t total = 0;
    scratch->out = scratch->begin;
    for (Py_ssize_t number = 0; number < plan->width; number++) {
        const Column *column = &plan->columns[number];
        Field *field = &fields[number];
        const unsigned char *tab = memchr(at, '\t', (size_t)(end - at));
        if (!tab != (number == plan->width - 1))
            return 0;
        *field = (Field){at, (tab ? tab : end) - at, 4, 0};
        at = tab ? tab + 1 : end;
        if (field->size == 2 && !memcmp(field->text, "\\N", 2)) {
            field->text = NULL;
        } else {
            if (has_escapes && memchr(field->text, '\\', (size_t)field->size)) {
                field->size = unescape(scratch->out, field->text, field->size);
                field->text = scratch->out;
                if (field->size < 0)
                    return 0;
                scratch->out += field->size;
            }
            field->written = json_size(column->form, field->text, field->size);
            if (field->written < 0)
                return 0;
        }
        if (is_held(column->form))
            total += (uint64_t)(total > 0) + (uint64_t)column->name.size + (uint64_t)field->written;
    }
    return total;
}

static int append(PyObject *keys, PyObject *values, PyObject *key, PyObject *value)
{
    return PyList_Append(keys, key) < 0 ? -1 : PyList_Append(values, value);
}

/* What is left to be done for a call. */
typedef struct {
    PyObject *rows, *changed, *keys, *values;
    Py_ssize_t at, free, largest;
    unsigned long long ordinal;
    Span parts[PARTS];
} Call;

/* Adds a row; 0 for one that Python takes, -1 with an error. */
static int add_row(const Plan *plan, Call *call, Scratch *scratch, Field *fields)
{
    char ordinal[24], number[24];
    PyObject *item = PyList_GetItem(call->rows, call->at), *key, *value;
    Span row;
    uint64_t total;
    int done, is_changed = 0;
    if (!item || !PyBytes_Check(item))
        return item ? 0 : -1;
    row = (Span){PyBytes_AsString(item), PyBytes_Size(item)};
    if (row.size > call->largest)
        return 0;
    if (row.size > scratch->size) {
        unsigned char *larger = PyMem_Realloc(scratch->begin, (size_t)row.size * 2);
        if (!larger) {
            PyErr_NoMemory();
            return -1;
        }
        *scratch = (Scratch){larger, larger, row.size * 2};
    }
    total = measure(plan, row, scratch, fields);
    call->parts[2] = (Span){ordinal, snprintf(ordinal, sizeof ordinal, "%08llx", call->ordinal)};
    call->parts[4] = (Span){number, snprintf(number, sizeof number, "%llu", call->ordinal + 1)};
    total = total ? total + size_around(plan, call->parts) : 0;
    if (!total || call->free < 0 || total > (uint64_t)call->free)
        return 0;
    if ((done = write_both(plan, fields, call->parts, total, &key, &value)) < 1)
        return done;
    if (plan->keys > 0 && PyDict_Size(call->changed))
        is_changed = PyDict_Contains(call->changed, key);
    done = is_changed ? -(is_changed < 0) : append(call->keys, call->values, key, value) < 0 ? -1 : 1;
    Py_DECREF(key);
    Py_DECREF(value);
    if (done == 1) {
        call->free -= (Py_ssize_t)total;
        call->ordinal++;
        call->at++;
    }
    return done;
}

PyObject *copy_rows(PyObject *object, PyObject *arguments)
{
    const Plan *plan = (const Plan *)object;
    Call call;
    Scratch scratch = {NULL, NULL, 0};
    Field *fields;
    int done = 1;
    if (!PyArg_ParseTuple(arguments, "O!nnnO!O!O!Ky#y#y#", &PyList_Type, &call.rows, &call.at, &call.free, &call.largest,
                          &PyDict_Type, &call.changed, &PyList_Type, &call.keys, &PyList_Type, &call.values, &call.ordinal,
                          &call.parts[0].bytes, &call.parts[0].size, &call.parts[1].bytes, &call.parts[1].size,
                          &call.parts[3].bytes, &call.parts[3].size))
        return NULL;
    if (plan->tuples != 1 || call.at < 0) {
        PyErr_SetString(PyExc_ValueError, "rows are copied by plans of one tuple, from a row on");
        return NULL;
    }
    fields = PyMem_Malloc((size_t)plan->width * sizeof(Field));
    if (!fields)
        return PyErr_NoMemory();
    while (done == 1 && call.at < PyList_Size(call.rows))
        done = add_row(plan, &call, &scratch, fields);
    PyMem_Free(fields);
    PyMem_Free(scratch.begin);
    return done < 0 ? NULL : Py_BuildValue("nn", call.at, call.free);
}
