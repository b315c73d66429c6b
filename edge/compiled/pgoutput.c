/* Changes of pgoutput as key and value in JSON: what edge/postgres/rows.py makes of them, for changes that hold nothing unusual.

   A message is measured first: column by column, each bound checked before a byte behind it is read. Then key and value are
   written into bytes of exactly that size. All that is not ordinary (an unchanged or larger column, NaN, a date before year 1, no
   UTF-8, no tuple) goes to the function in Python, which raises all errors. Between measuring and writing no Python code runs.
   Plans are made by edge/postgres/rows.py. */

#include "plan.h"

/* The size of bytes in hexadecimal as base64; -1 where they are not in that form. */
static Py_ssize_t base64_size(const unsigned char *text, Py_ssize_t size)
{
    if (size < 2 || size % 2 || text[0] != '\\' || text[1] != 'x')
        return -1;
    for (Py_ssize_t at = 2; at < size; at++)
        if (digit_of[text[at]] < 0)
            return -1;
    return ((size - 2) / 2 + 2) / 3 * 4;
}

static char *put_base64(char *out, const unsigned char *text, Py_ssize_t size)
{
    for (Py_ssize_t at = 2; at < size; at += 6) {
        unsigned bits = 0;
        int bytes = size - at >= 6 ? 3 : (int)(size - at) / 2;
        for (int number = 0; number < 3; number++) {
            bits <<= 8;
            if (number < bytes)
                bits |= (unsigned)(digit_of[text[at + 2 * number]] << 4 | digit_of[text[at + 2 * number + 1]]);
        }
        out = put_base64_group(out, bits, bytes);
    }
    return out;
}

Py_ssize_t json_size(char form, const unsigned char *text, Py_ssize_t size)
{
    Py_ssize_t inner = size;
    switch (form) {
    case LEFT_OUT:
        return 0;
    case NUMBER:
        return size;
    case FLOAT:
        return !size || text[size - 1] > '9' || (size == 2 && !memcmp(text, "-0", 2)) ? -1 : size;
    case BOOLEAN:
        return size != 1 ? -1 : *text == 't' ? 4 : *text == 'f' ? 5 : -1;
    case BINARY:
        inner = base64_size(text, size);
        break;
    case PLAIN:
        break;
    case TIMESTAMP:
        inner = !size || text[size - 1] > '9' ? -1 : size;
        break;
    case TIMESTAMPTZ:
        inner = size < 3 || memcmp(text + size - 3, "+00", 3) ? -1 : size - 2;
        break;
    case TEXT:
        inner = escaped_size(text, size);
        break;
    default:
        return -1;
    }
    return inner < 0 ? -1 : inner + 2;
}

static char *put_json(char *out, char form, const Field *field)
{
    const unsigned char *text = field->text;
    Py_ssize_t size = field->size, inner = field->written - 2;
    if (!text)
        return put(out, "null", 4);
    if (form == NUMBER || form == FLOAT)
        return put(out, text, size);
    if (form == BOOLEAN)
        return *text == 't' ? put(out, "true", 4) : put(out, "false", 5);
    *out++ = '"';
    if (form == BINARY)
        out = put_base64(out, text, size);
    else if (form == TEXT && inner != size)
        out = put_escaped(out, text, size);
    else if (form == TIMESTAMP || form == TIMESTAMPTZ)
        for (Py_ssize_t at = 0; at < inner; at++)
            *out++ = text[at] == ' ' ? 'T' : text[at] == '+' ? 'Z' : (char)text[at];
    else
        out = put(out, text, size);
    *out++ = '"';
    return out;
}

/* Measures a tuple: {Byte1('n') | Byte1('t') Int32(length) Byten(text)}... Returns where it ends; NULL for an unusual one. */
static const unsigned char *measure(const Plan *plan, Py_ssize_t first, const unsigned char *at, const unsigned char *end,
                                    Field *fields, uint64_t *total)
{
    int is_first = 1;
    for (Py_ssize_t number = first; number < first + plan->width; number++) {
        const Column *column = &plan->columns[number];
        Field *field = &fields[number];
        if (at >= end)
            return NULL;
        if (*at == 'n') {
            at++;
            field->text = NULL;
            field->size = 0;
            field->written = 4;
        } else {
            uint32_t length;
            if (*at != 't' || end - at < 5)
                return NULL;
            length = (uint32_t)at[1] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 8 | at[4];
            at += 5;
            if (length > (size_t)(end - at))
                return NULL;
            field->text = at;
            field->size = (Py_ssize_t)length;
            field->written = json_size(column->form, at, field->size);
            if (field->written < 0)
                return NULL;
            at += length;
        }
        if (is_held(column->form)) {
            *total += (uint64_t)!is_first + (uint64_t)column->name.size + (uint64_t)field->written;
            is_first = 0;
        }
    }
    return at;
}


static char *put_row(char *out, const char *begin, const Plan *plan, Py_ssize_t first, Field *fields)
{
    int is_first = 1;
    for (Py_ssize_t number = first; number < first + plan->width; number++) {
        const Column *column = &plan->columns[number];
        if (!is_held(column->form))
            continue;
        if (!is_first)
            *out++ = ',';
        is_first = 0;
        fields[number].at = out - begin;
        out = put_span(out, column->name);
        out = put_json(out, column->form, &fields[number]);
    }
    return out;
}

/* The value, with its size and what comes from the transaction; NULL with an error where there is no memory. */
static PyObject *write_value(const Plan *plan, Field *fields, const Span *parts, Py_ssize_t size)
{
    PyObject *value = PyBytes_FromStringAndSize(NULL, size);
    const Span *constant = plan->constants;
    char *begin, *out;
    if (!value)
        return NULL;
    begin = out = PyBytes_AsString(value);
    out = put_span(out, *constant++);
    for (Py_ssize_t tuple = 0; tuple < plan->tuples; tuple++) {
        out = put_row(out, begin, plan, tuple * plan->width, fields);
        out = put_span(out, *constant++);
    }
    out = put_span(out, parts[0]);
    out = put_span(out, *constant++);
    out = put_span(out, parts[1]);
    out = put_span(out, parts[2]);
    out = put_span(out, *constant++);
    out = put_span(out, parts[3]);
    out = put_span(out, parts[4]);
    out = put_span(out, *constant);
    if (out - begin == size)
        return value;
    Py_DECREF(value);
    PyErr_SetString(PyExc_SystemError, "a record has another size than was measured");
    return NULL;
}

/* The key, whose columns are in the value already. */
static PyObject *write_key(const Plan *plan, const Field *fields, PyObject *value)
{
    const Field *row = fields + (plan->tuples - 1) * plan->width;
    const Column *columns = plan->columns + (plan->tuples - 1) * plan->width;
    const char *begin = PyBytes_AsString(value);
    Py_ssize_t size = 1;
    PyObject *key;
    char *out;
    if (plan->keys < 0)
        return Py_NewRef(Py_None);
    for (Py_ssize_t each = 0; each < plan->keys; each++)
        size += 1 + columns[plan->key[each]].name.size + row[plan->key[each]].written;
    key = PyBytes_FromStringAndSize(NULL, size);
    if (!key)
        return NULL;
    out = PyBytes_AsString(key);
    for (Py_ssize_t each = 0; each < plan->keys; each++) {
        Py_ssize_t number = plan->key[each];
        *out++ = each ? ',' : '{';
        out = put(out, begin + row[number].at, columns[number].name.size + row[number].written);
    }
    *out = '}';
    return key;
}

uint64_t size_around(const Plan *plan, const Span *parts)
{
    uint64_t total = 0;
    for (Py_ssize_t each = 0; each < plan->tuples + 4; each++)
        total += (uint64_t)plan->constants[each].size;
    for (int each = 0; each < PARTS; each++)
        total += (uint64_t)parts[each].size;
    return total;
}

int write_both(const Plan *plan, Field *fields, const Span *parts, uint64_t total, PyObject **key, PyObject **value)
{
    if (total > PY_SSIZE_T_MAX)
        return 0;
    *value = write_value(plan, fields, parts, (Py_ssize_t)total);
    if (!*value)
        return -1;
    *key = write_key(plan, fields, *value);
    if (*key)
        return 1;
    Py_DECREF(*value);
    return -1;
}

/* Key and value; NULL without an error for what is not ordinary. */
static PyObject *decode_ordinary(const Plan *plan, Span message, const Span *parts, Field *fields)
{
    const unsigned char *at = (const unsigned char *)message.bytes + HEAD;
    const unsigned char *end = (const unsigned char *)message.bytes + message.size - PAD;
    const unsigned char next[3] = {'N', (unsigned char)(plan->width >> 8), (unsigned char)plan->width};
    uint64_t total = 0;
    PyObject *key, *value, *both;
    for (Py_ssize_t tuple = 0; tuple < plan->tuples; tuple++) {
        if (tuple) {
            if (end - at < 3 || memcmp(at, next, 3))
                return NULL;
            at += 3;
        }
        at = measure(plan, tuple * plan->width, at, end, fields, &total);
        if (!at)
            return NULL;
    }
    if (at != end)
        return NULL;
    total += size_around(plan, parts);
    if (write_both(plan, fields, parts, total, &key, &value) < 1)
        return NULL;
    both = PyTuple_Pack(2, key, value);
    Py_DECREF(key);
    Py_DECREF(value);
    return both;
}

static PyObject *decode_exactly(const Plan *plan, PyObject *const *arguments, Py_ssize_t count)
{
    PyObject *result, *all;
    if (!plan->exact) {
        PyErr_SetString(PyExc_RuntimeError, "a plan is used after it was cleared");
        return NULL;
    }
    all = PyTuple_New(count);
    if (!all)
        return NULL;
    for (Py_ssize_t each = 0; each < count; each++)
        if (PyTuple_SetItem(all, each, Py_NewRef(arguments[each])) < 0) {
            Py_DECREF(all);
            return NULL;
        }
    result = PyObject_Call(plan->exact, all, NULL);
    Py_DECREF(all);
    return result;
}

PyDoc_STRVAR(decode_doc, "decode(message, committed, place, ordinal, read, number)\n--\n\n"
                         "Return key and value of a padded message; raise what the exact function raises.");

static PyObject *decode(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    Plan *plan = (Plan *)object;
    Py_ssize_t columns = plan->tuples * plan->width;
    Field on_stack[FIELDS], *fields = on_stack;
    Span spans[1 + PARTS];
    PyObject *result;
    int is_ordinary = count == 1 + PARTS;
    for (Py_ssize_t each = 0; is_ordinary && each < count; each++) {
        is_ordinary = PyBytes_Check(arguments[each]);
        if (is_ordinary)
            spans[each] = (Span){PyBytes_AsString(arguments[each]), PyBytes_Size(arguments[each])};
    }
    if (!is_ordinary || spans[0].size < HEAD + PAD)
        return decode_exactly(plan, arguments, count);
    if (columns > FIELDS && !(fields = PyMem_Malloc((size_t)columns * sizeof(Field))))
        return PyErr_NoMemory();
    result = decode_ordinary(plan, spans[0], spans + 1, fields);
    if (fields != on_stack)
        PyMem_Free(fields);
    if (result || PyErr_Occurred())
        return result;
    return decode_exactly(plan, arguments, count);
}

static int fill(Plan *plan, const char *forms, Py_ssize_t columns, PyObject *key)
{
    Py_ssize_t constants = PyTuple_Size(plan->pieces);
    plan->tuples = constants - 4;
    if (plan->tuples < 1 || constants > MOST_CONSTANTS || !columns || columns % plan->tuples ||
        PyTuple_Size(plan->names) != columns || columns / plan->tuples > UINT16_MAX) {
        PyErr_SetString(PyExc_ValueError, "forms, names and constants are not those of one or two tuples");
        return -1;
    }
    plan->width = columns / plan->tuples;
    for (Py_ssize_t each = 0; each < constants; each++)
        if (take_bytes(plan->pieces, each, &plan->constants[each]) < 0)
            return -1;
    plan->columns = PyMem_Calloc((size_t)columns, sizeof(Column));
    if (!plan->columns) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t each = 0; each < columns; each++) {
        plan->columns[each].form = forms[each];
        if (take_bytes(plan->names, each, &plan->columns[each].name) < 0)
            return -1;
    }
    plan->keys = PyTuple_Size(key) ? PyTuple_Size(key) : -1;
    plan->key = PyMem_Calloc((size_t)PyTuple_Size(key) + 1, sizeof(Py_ssize_t));
    if (!plan->key) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t each = 0; each < plan->keys; each++) {
        Py_ssize_t number = PyLong_AsSsize_t(PyTuple_GetItem(key, each));
        if (number < 0 || number >= plan->width || !is_held(forms[columns - plan->width + number])) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "a column of the key is not in the row");
            return -1;
        }
        plan->key[each] = number;
    }
    return 0;
}

static PyObject *new_plan(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    const char *forms;
    Py_ssize_t columns;
    PyObject *names, *key, *pieces, *exact;
    Plan *plan;
    if (named && PyDict_Size(named)) {
        PyErr_SetString(PyExc_TypeError, "a plan has no named arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "y#O!O!O!O", &forms, &columns, &PyTuple_Type, &names, &PyTuple_Type, &key, &PyTuple_Type,
                          &pieces, &exact))
        return NULL;
    plan = (Plan *)PyType_GenericAlloc(type, 0);
    if (!plan)
        return NULL;
    plan->exact = Py_NewRef(exact);
    plan->names = Py_NewRef(names);
    plan->pieces = Py_NewRef(pieces);
    if (fill(plan, forms, columns, key) < 0) {
        Py_DECREF(plan);
        return NULL;
    }
    return (PyObject *)plan;
}

static int traverse(PyObject *object, visitproc visit, void *arg)
{
    Plan *plan = (Plan *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(plan->exact);
    Py_VISIT(plan->names);
    Py_VISIT(plan->pieces);
    return 0;
}

static int clear(PyObject *object)
{
    /* What names and pieces hold is pointed at, and is part of no circle. */
    Py_CLEAR(((Plan *)object)->exact);
    return 0;
}

static void release(PyObject *object)
{
    Plan *plan = (Plan *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_CLEAR(plan->exact);
    Py_CLEAR(plan->names);
    Py_CLEAR(plan->pieces);
    PyMem_Free(plan->columns);
    PyMem_Free(plan->key);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

PyDoc_STRVAR(copy_doc, "copy(rows, start, free, largest, changed, keys, values, ordinal, committed, place, read)\n--\n\n"
                       "Add keys and values of rows as COPY prints them to lists; return the first row that was not, and what is "
                       "left of the free bytes.\n\n"
                       "That is one which is unusual, larger, of a changed key, or not of so many bytes.");

static PyMethodDef methods[] = {
    {"decode", (PyCFunction)(void (*)(void))decode, METH_FASTCALL, decode_doc},
    {"copy", copy_rows, METH_VARARGS, copy_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(plan_doc, "Plan(forms, names, key, constants, exact)\n--\n\n"
                       "How the messages of one kind of change of a table become records.\n\n"
                       "`forms` and `names` are those of all columns of its one or two tuples, `key` the numbers of the key's "
                       "columns in the last tuple.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)plan_doc}, {Py_tp_new, new_plan}, {Py_tp_traverse, traverse}, {Py_tp_clear, clear},
    {Py_tp_dealloc, release},      {Py_tp_methods, methods}, {0, NULL},
};

PyType_Spec plan_spec = {
    .name = "edge.compiled.row_json.Plan",
    .basicsize = sizeof(Plan),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
