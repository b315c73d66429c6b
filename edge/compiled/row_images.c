/* Rows events of MariaDB and MySQL as keys and values in JSON: what edge/mysql/rows.py makes of them, for rows that hold nothing
   unusual.

   An event's images are written one after the other into a buffer that grows, each bound checked before a byte behind it is
   read; each record is then copied out. An event with anything that is not ordinary (a value that no server writes, no UTF-8, an
   image that ends elsewhere) is left to the functions in Python: they take it from its beginning, and raise all errors. How
   columns are read is determined by edge/mysql/column_text.py. */

#include "images.h"

enum { INSERT, UPDATE, DELETE };

/* Where a column's name and JSON are in a record. */
typedef struct {
    Py_ssize_t at, size;
} Place;

typedef struct {
    PyObject_HEAD
    PyObject *owned; /* The arguments, which own names and members. */
    Py_ssize_t width;
    Column *columns;
    Py_ssize_t keys; /* Columns of the key, 0 for none. */
    Py_ssize_t *key;
    Place *places;
} Images;

/* The bytes of an event that are not read yet. */
typedef struct {
    const unsigned char *at, *end;
} Input;

/* Takes a value that is there out of the input; NULL where it ends behind it. */
static const unsigned char *take(Input *input, const Column *column, Py_ssize_t *size)
{
    const unsigned char *value;
    Py_ssize_t left = input->end - input->at;
    if (left < column->size)
        return NULL;
    *size = column->size;
    if (column->is_sized) {
        *size = (Py_ssize_t)little(input->at, column->size);
        input->at += column->size;
        if (*size > left - column->size)
            return NULL;
    }
    value = input->at;
    input->at += *size;
    return value;
}

/* An image: a bit for each null, then the values. */
static int put_image(const Images *images, Buffer *buffer, Input *input)
{
    const unsigned char *nulls = input->at;
    Py_ssize_t size = 0, begun = buffer->out - buffer->begin;
    char separator = '{';
    if (input->end - input->at < (images->width + 7) / 8)
        return UNUSUAL;
    input->at += (images->width + 7) / 8;
    for (Py_ssize_t number = 0; number < images->width; number++) {
        const Column *column = &images->columns[number];
        int is_null = nulls[number >> 3] >> (number & 7) & 1, done = DONE;
        const unsigned char *value = is_null ? NULL : take(input, column, &size);
        if (!is_null && !value)
            return UNUSUAL;
        if (column->form == LEFT_OUT)
            continue;
        if (reserve(buffer, column->name.size + ROOM) < 0)
            return NO_MEMORY;
        *buffer->out++ = separator;
        separator = ',';
        images->places[number].at = buffer->out - buffer->begin;
        buffer->out = put_span(buffer->out, column->name);
        if (is_null)
            buffer->out = put(buffer->out, "null", 4);
        else
            done = put_value(buffer, column, value, size);
        if (done != DONE)
            return done;
        images->places[number].size = buffer->out - buffer->begin - images->places[number].at;
    }
    if (reserve(buffer, ROOM) < 0)
        return NO_MEMORY;
    if (buffer->out - buffer->begin == begun)
        *buffer->out++ = '{';
    *buffer->out++ = '}';
    return DONE;
}

/* The key, whose columns are in the record already. */
static PyObject *key_of(const Images *images, const Buffer *record)
{
    Py_ssize_t size = 1;
    PyObject *key;
    char *out;
    if (!images->keys)
        return Py_NewRef(Py_None);
    for (Py_ssize_t each = 0; each < images->keys; each++)
        size += 1 + images->places[images->key[each]].size;
    key = PyBytes_FromStringAndSize(NULL, size);
    if (!key)
        return NULL;
    out = PyBytes_AsString(key);
    for (Py_ssize_t each = 0; each < images->keys; each++) {
        const Place *place = &images->places[images->key[each]];
        *out++ = each ? ',' : '{';
        out = put(out, record->begin + place->at, place->size);
    }
    *out = '}';
    return key;
}

/* What is around the rows of an event's records. */
typedef struct {
    int kind;
    Span middle, place, end;
    uint64_t first;
} Around;

static int put_piece(Buffer *buffer, Span piece)
{
    if (reserve(buffer, piece.size + ROOM) < 0)
        return NO_MEMORY;
    buffer->out = put_span(buffer->out, piece);
    return DONE;
}

/* The record of the row at the input, with its number in the event. */
static int put_record(const Images *images, Buffer *buffer, Input *input, const Around *around, uint64_t number)
{
    static const char *const before[] = {"{\"before\":null,\"after\":", "{\"before\":", "{\"before\":"};
    static const char *const behind[] = {",", ",", ",\"after\":null,"};
    const char *between = ",\"after\":";
    uint64_t ordinal = around->first + number;
    int done;
    buffer->out = buffer->begin;
    if (put_piece(buffer, (Span){before[around->kind], (Py_ssize_t)strlen(before[around->kind])}) < 0)
        return NO_MEMORY;
    if ((done = put_image(images, buffer, input)) != DONE)
        return done;
    if (around->kind == UPDATE) {
        if (put_piece(buffer, (Span){between, (Py_ssize_t)strlen(between)}) < 0)
            return NO_MEMORY;
        if ((done = put_image(images, buffer, input)) != DONE)
            return done;
    }
    buffer->out = put(buffer->out, behind[around->kind], (Py_ssize_t)strlen(behind[around->kind]));
    if (put_piece(buffer, around->middle) < 0)
        return NO_MEMORY;
    buffer->out = put_number(buffer->out, number);
    if (put_piece(buffer, around->place) < 0)
        return NO_MEMORY;
    for (int shift = ordinal >> 32 ? 60 : 28; shift >= 0; shift -= 4)
        if (shift < 32 || ordinal >> shift)
            *buffer->out++ = HEXADECIMAL[ordinal >> shift & 15];
    if (put_piece(buffer, around->end) < 0)
        return NO_MEMORY;
    buffer->out = put_number(buffer->out, ordinal + 1);
    buffer->out = put(buffer->out, "}}", 2);
    return DONE;
}

static int append(PyObject *list, PyObject *item)
{
    int done = item ? PyList_Append(list, item) : -1;
    Py_XDECREF(item);
    return done;
}

/* Adds the event's keys and values to lists. */
static int put_event(const Images *images, Buffer *buffer, Input input, const Around *around, PyObject *keys, PyObject *values)
{
    for (uint64_t number = 0; input.at < input.end; number++) {
        int done = put_record(images, buffer, &input, around, number);
        if (done != DONE)
            return done;
        if (append(keys, key_of(images, buffer)) < 0 ||
            append(values, PyBytes_FromStringAndSize(buffer->begin, buffer->out - buffer->begin)) < 0)
            return NO_MEMORY;
    }
    return DONE;
}

/* A new reference to None in place of what there is not. */
static PyObject *or_none(PyObject *object)
{
    return object ? object : Py_NewRef(Py_None);
}

/* Takes an image; its key and its JSON, both NULL where there is no memory. */
static int take_image(const Images *images, Buffer *buffer, Input *input, PyObject **key, PyObject **row)
{
    int done;
    buffer->out = buffer->begin;
    if ((done = put_image(images, buffer, input)) != DONE)
        return done;
    *key = key_of(images, buffer);
    *row = PyBytes_FromStringAndSize(buffer->begin, buffer->out - buffer->begin);
    return *key && *row ? DONE : NO_MEMORY;
}

/* Adds the change of the row at the input: former key, old row, key, new row, and that it lacks nothing. */
static int add_change(const Images *images, Buffer *buffer, Input *input, int kind, PyObject *changes)
{
    PyObject *former = NULL, *old = NULL, *key = NULL, *row = NULL, *change;
    int done = kind == INSERT ? DONE : take_image(images, buffer, input, &former, &old);
    if (done == DONE && kind != DELETE)
        done = take_image(images, buffer, input, &key, &row);
    former = or_none(former);
    old = or_none(old);
    key = or_none(key);
    row = or_none(row);
    if (done == DONE) {
        change = PyTuple_Pack(5, former, old, key, row, Py_None);
        done = append(changes, change) < 0 ? NO_MEMORY : DONE;
    }
    Py_DECREF(former);
    Py_DECREF(old);
    Py_DECREF(key);
    Py_DECREF(row);
    return done;
}

PyDoc_STRVAR(changes_doc, "changes(kind, event, start, end)\n--\n\n"
                          "Return former key, old row, key, new row and None of each change from start to end; None where "
                          "something is unusual.");

static PyObject *changes(PyObject *object, PyObject *arguments)
{
    Buffer buffer = {NULL, NULL, NULL};
    Input input;
    const char *event;
    Py_ssize_t size, start, end;
    int kind, done;
    PyObject *found;
    if (!PyArg_ParseTuple(arguments, "iy#nn", &kind, &event, &size, &start, &end))
        return NULL;
    if (kind < INSERT || kind > DELETE || start < 0 || end > size || start > end)
        Py_RETURN_NONE;
    input = (Input){(const unsigned char *)event + start, (const unsigned char *)event + end};
    found = PyList_New(0);
    done = found && reserve(&buffer, 1024) == DONE ? DONE : NO_MEMORY;
    while (done == DONE && input.at < input.end)
        done = add_change((const Images *)object, &buffer, &input, kind, found);
    PyMem_Free(buffer.begin);
    if (done == DONE)
        return found;
    Py_XDECREF(found);
    if (done == UNUSUAL)
        Py_RETURN_NONE;
    return PyErr_Occurred() ? NULL : PyErr_NoMemory();
}

PyDoc_STRVAR(decode_doc, "decode(kind, event, start, end, first, middle, place, rest)\n--\n\n"
                         "Return keys and values of the images from start to end; None where something is unusual.");

static PyObject *decode(PyObject *object, PyObject *arguments)
{
    Images *images = (Images *)object;
    Around around;
    Buffer buffer = {NULL, NULL, NULL};
    const char *event;
    Py_ssize_t size, start, end;
    unsigned long long first;
    int done = NO_MEMORY;
    PyObject *keys = NULL, *values = NULL, *both = NULL;
    if (!PyArg_ParseTuple(arguments, "iy#nnKy#y#y#", &around.kind, &event, &size, &start, &end, &first, &around.middle.bytes,
                          &around.middle.size, &around.place.bytes, &around.place.size, &around.end.bytes, &around.end.size))
        return NULL;
    if (around.kind < INSERT || around.kind > DELETE || start < 0 || end > size || start > end)
        Py_RETURN_NONE;
    around.first = first;
    keys = PyList_New(0);
    values = PyList_New(0);
    if (keys && values && reserve(&buffer, 1024) == DONE) {
        const unsigned char *bytes = (const unsigned char *)event;
        done = put_event(images, &buffer, (Input){bytes + start, bytes + end}, &around, keys, values);
    }
    PyMem_Free(buffer.begin);
    if (done == DONE)
        both = PyTuple_Pack(2, keys, values);
    else if (done == UNUSUAL)
        both = Py_NewRef(Py_None);
    else if (!PyErr_Occurred())
        PyErr_NoMemory();
    Py_XDECREF(keys);
    Py_XDECREF(values);
    return both;
}

enum { DESCRIBED = 8 };

/* Fills a column from {Char form; Int8 is sized; Int16 size, length, scale}, little-endian, its name and its members. */
static int fill_column(Column *column, const unsigned char *described, PyObject *members)
{
    if (!members || !PyTuple_Check(members)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a column's members are no tuple");
        return -1;
    }
    column->form = (char)described[0];
    column->is_sized = (char)described[1];
    column->size = (uint16_t)little(described + 2, 2);
    column->length = (uint16_t)little(described + 4, 2);
    column->scale = (uint16_t)little(described + 6, 2);
    column->count = PyTuple_Size(members);
    column->members = PyMem_Calloc((size_t)column->count + 1, sizeof(Span));
    if (!column->members) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t each = 0; each < column->count; each++)
        if (take_bytes(members, each, &column->members[each]) < 0)
            return -1;
    if (!is_possible(column)) {
        PyErr_SetString(PyExc_ValueError, "a column's form is none");
        return -1;
    }
    return 0;
}

static int fill(Images *images, Span described, PyObject *names, PyObject *members, PyObject *key)
{
    Py_ssize_t width = PyTuple_Size(names), keys = PyTuple_Size(key);
    if (!width || PyTuple_Size(members) != width || described.size != width * DESCRIBED) {
        PyErr_SetString(PyExc_ValueError, "columns, names and members are not those of one table");
        return -1;
    }
    images->columns = PyMem_Calloc((size_t)width, sizeof(Column));
    images->places = PyMem_Calloc((size_t)width, sizeof(Place));
    images->key = PyMem_Calloc((size_t)keys + 1, sizeof(Py_ssize_t));
    if (!images->columns || !images->places || !images->key) {
        PyErr_NoMemory();
        return -1;
    }
    images->width = width;
    for (Py_ssize_t each = 0; each < width; each++) {
        const unsigned char *column = (const unsigned char *)described.bytes + each * DESCRIBED;
        if (take_bytes(names, each, &images->columns[each].name) < 0 ||
            fill_column(&images->columns[each], column, PyTuple_GetItem(members, each)) < 0)
            return -1;
    }
    for (Py_ssize_t each = 0; each < keys; each++) {
        Py_ssize_t number = PyLong_AsSsize_t(PyTuple_GetItem(key, each));
        if (number < 0 || number >= width || images->columns[number].form == LEFT_OUT) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "a column of the key is not in the row");
            return -1;
        }
        images->key[each] = number;
    }
    images->keys = keys;
    return 0;
}

static PyObject *new_images(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    Span described;
    PyObject *names, *members, *key;
    Images *images;
    if (named && PyDict_Size(named)) {
        PyErr_SetString(PyExc_TypeError, "images have no named arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "y#O!O!O!", &described.bytes, &described.size, &PyTuple_Type, &names, &PyTuple_Type, &members,
                          &PyTuple_Type, &key))
        return NULL;
    images = (Images *)PyType_GenericAlloc(type, 0);
    if (!images)
        return NULL;
    images->owned = Py_NewRef(arguments);
    if (fill(images, described, names, members, key) < 0) {
        Py_DECREF(images);
        return NULL;
    }
    return (PyObject *)images;
}

static void release(PyObject *object)
{
    Images *images = (Images *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (Py_ssize_t each = 0; images->columns && each < images->width; each++)
        PyMem_Free(images->columns[each].members);
    PyMem_Free(images->columns);
    PyMem_Free(images->places);
    PyMem_Free(images->key);
    Py_CLEAR(images->owned);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"decode", decode, METH_VARARGS, decode_doc},
    {"changes", changes, METH_VARARGS, changes_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(images_doc, "Images(columns, names, members, key)\n--\n\n"
                         "How the rows events of a table become records.\n\n"
                         "`key`: the numbers of the key's columns. Nothing that is given may hold this object.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)images_doc}, {Py_tp_new, new_images}, {Py_tp_dealloc, release}, {Py_tp_methods, methods}, {0, NULL},
};

PyType_Spec images_spec = {
    .name = "edge.compiled.row_json.Images",
    .basicsize = sizeof(Images),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
