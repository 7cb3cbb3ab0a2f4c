/* Writing: from objects to bytes. */
#include "writer.h"

static int write_fields(Program *program, PyObject *object, Writer *writer);
static int holds_defaults(const Program *program, PyObject *object);

int grow(Writer *writer, Py_ssize_t more) {
    if (more > PY_SSIZE_T_MAX / 2 - writer->size) {
        PyErr_NoMemory();
        return FAILED;
    }
    Py_ssize_t room = writer->size + more;
    room += room >> 1;
    if (writer->owner == NULL) {
        writer->owner = PyBytes_FromStringAndSize(NULL, room);
        if (writer->owner == NULL)
            return FAILED;
        if (writer->size)
            memcpy(PyBytes_AS_STRING(writer->owner), writer->data, (size_t)writer->size);
    } else if (_PyBytes_Resize(&writer->owner, room) < 0) {
        return FAILED;
    }
    writer->data = (uint8_t *)PyBytes_AS_STRING(writer->owner);
    writer->room = room;
    return WRITTEN;
}

/* Write a length or count; -1 is null. */
static inline int write_length(Prefix prefix, Py_ssize_t length, Writer *writer) {
    switch (prefix) {
    case P_INT16: {
        if (length > INT16_MAX)
            return DECLINED;
        TAKE(p, 2);
        put16(p, (uint16_t)length);
        return WRITTEN;
    }
    case P_INT32: {
        if (length > INT32_MAX)
            return DECLINED;
        TAKE(p, 4);
        put32(p, (uint32_t)length);
        return WRITTEN;
    }
    case P_COMPACT:
        return length >= UINT32_MAX ? DECLINED : write_varint((uint64_t)(length + 1), writer);
    case P_VARINT:
        return length > INT32_MAX ? DECLINED : write_varint(zigzag(length), writer);
    case P_UNSIGNED:
        return length < 0 || length > UINT32_MAX ? DECLINED : write_varint((uint64_t)length, writer);
    }
    return DECLINED;
}

static inline int write_null(const Type *type, Writer *writer) {
    return type->nullable ? write_length(type->prefix, -1, writer) : DECLINED;
}

/* An integer of fixed width. Subclasses of int are written as struct.pack does, by their digits. */
static inline int write_integer(Kind kind, PyObject *value, Writer *writer) {
    if (!PyLong_Check(value))
        return DECLINED;
    if (kind == K_UINT64) {
        unsigned long long number = PyLong_AsUnsignedLongLong(value);
        if (number == (unsigned long long)-1 && PyErr_Occurred()) {
            PyErr_Clear();
            return DECLINED;
        }
        TAKE(p, 8);
        put64(p, number);
        return WRITTEN;
    }
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow)
        return DECLINED;
    switch (kind) {
    case K_INT8:
    case K_UINT8: {
        if (kind == K_INT8 ? number != (int8_t)number : number != (uint8_t)number)
            return DECLINED;
        TAKE(p, 1);
        *p = (uint8_t)number;
        return WRITTEN;
    }
    case K_INT16:
    case K_UINT16: {
        if (kind == K_INT16 ? number != (int16_t)number : number != (uint16_t)number)
            return DECLINED;
        TAKE(p, 2);
        put16(p, (uint16_t)number);
        return WRITTEN;
    }
    case K_INT32:
    case K_UINT32: {
        if (kind == K_INT32 ? number != (int32_t)number : number != (uint32_t)number)
            return DECLINED;
        TAKE(p, 4);
        put32(p, (uint32_t)number);
        return WRITTEN;
    }
    default: {
        TAKE(p, 8);
        put64(p, (uint64_t)number);
        return WRITTEN;
    }
    }
}

static int write_variable(Kind kind, PyObject *value, Writer *writer) {
    if (!PyLong_CheckExact(value))
        return DECLINED;
    if (kind == K_UVARLONG) {
        unsigned long long number = PyLong_AsUnsignedLongLong(value);
        if (number == (unsigned long long)-1 && PyErr_Occurred()) {
            PyErr_Clear();
            return DECLINED;
        }
        return write_varint(number, writer);
    }
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow || (kind == K_VARINT && number != (int32_t)number) ||
        (kind == K_UVARINT && number != (uint32_t)number))
        return DECLINED;
    return write_varint(kind == K_UVARINT ? (uint64_t)number : zigzag(number), writer);
}

static int write_float(Kind kind, PyObject *value, Writer *writer) {
    if (!PyFloat_CheckExact(value))
        return DECLINED;
    TAKE(p, kind == K_FLOAT32 ? 4 : 8);
    int packed = kind == K_FLOAT32 ? PyFloat_Pack4(PyFloat_AS_DOUBLE(value), (char *)p, 0)
                                   : PyFloat_Pack8(PyFloat_AS_DOUBLE(value), (char *)p, 0);
    if (packed < 0) {
        PyErr_Clear(); /* too large for 32 bits */
        return DECLINED;
    }
    return WRITTEN;
}

static int write_uuid(PyObject *value, Writer *writer) {
    if (!Py_IS_TYPE(value, uuid_type))
        return DECLINED;
    PyObject *number = SLOT(value, uuid_int);
    if (number == NULL || !PyLong_CheckExact(number))
        return DECLINED;
    TAKE(p, 16);
#if PY_VERSION_HEX >= 0x030D0000
    int failed = _PyLong_AsByteArray((PyLongObject *)number, p, 16, 0, 0, 1);
#else
    int failed = _PyLong_AsByteArray((PyLongObject *)number, p, 16, 0, 0);
#endif
    if (failed) {
        PyErr_Clear(); /* not 128 bits */
        return DECLINED;
    }
    return WRITTEN;
}

int write_string(const Type *type, PyObject *value, Writer *writer) {
    if (value == Py_None)
        return write_null(type, writer);
    if (!PyUnicode_CheckExact(value))
        return DECLINED;
#if PY_VERSION_HEX < 0x030C0000
    if (PyUnicode_READY(value) < 0)
        return FAILED;
#endif
    PyObject *bytes = NULL;
    const void *data;
    Py_ssize_t size;
    if (PyUnicode_IS_ASCII(value)) {
        data = PyUnicode_DATA(value);
        size = PyUnicode_GET_LENGTH(value);
    } else { /* not PyUnicode_AsUTF8AndSize: it would keep the bytes in the string */
        bytes = PyUnicode_AsUTF8String(value);
        if (bytes == NULL) {
            if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
                return FAILED;
            PyErr_Clear(); /* lone surrogates */
            return DECLINED;
        }
        data = PyBytes_AS_STRING(bytes);
        size = PyBytes_GET_SIZE(bytes);
    }
    int done = write_length(type->prefix, size, writer);
    if (done == WRITTEN)
        done = write_raw(data, size, writer);
    Py_XDECREF(bytes);
    return done;
}

/* The bytes of a value; `view` needs a release if it has an object. */
static int open_bytes(PyObject *value, Py_buffer *view) {
    view->obj = NULL;
    if (PyBytes_CheckExact(value)) {
        view->buf = PyBytes_AS_STRING(value);
        view->len = PyBytes_GET_SIZE(value);
        return WRITTEN;
    }
    if (PyByteArray_CheckExact(value)) {
        view->buf = PyByteArray_AS_STRING(value);
        view->len = PyByteArray_GET_SIZE(value);
        return WRITTEN;
    }
    if (!PyMemoryView_Check(value))
        return DECLINED;
    if (PyObject_GetBuffer(value, view, PyBUF_SIMPLE) < 0) {
        view->obj = NULL;
        if (PyErr_ExceptionMatches(PyExc_MemoryError))
            return FAILED;
        PyErr_Clear(); /* released, or not contiguous */
        return DECLINED;
    }
    return WRITTEN;
}

int write_bytes(const Type *type, PyObject *value, Writer *writer) {
    if (value == Py_None && type->kind == K_BYTES)
        return write_null(type, writer);
    Py_buffer view;
    int done = open_bytes(value, &view);
    if (done < 0)
        return done;
    if (type->kind == K_BYTES)
        done = write_length(type->prefix, view.len, writer);
    if (done == WRITTEN)
        done = write_raw(view.buf, view.len, writer);
    if (view.obj != NULL)
        PyBuffer_Release(&view);
    return done;
}

static int write_value(const Type *type, PyObject *value, Writer *writer);

static int write_array(const Type *type, PyObject *value, Writer *writer) {
    if (value == Py_None)
        return write_null(type, writer);
    if (!PyList_CheckExact(value) && !PyTuple_CheckExact(value))
        return DECLINED;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(value);
    if (type->element->min_size == 0) {
        if (count > MAX_ZERO_WIDTH - (Py_ssize_t)writer->empty)
            return DECLINED;
        writer->empty += (uint32_t)count;
    }
    int done = write_length(type->prefix, count, writer);
    /* Nothing that is called here runs Python code, so the list keeps its items. */
    PyObject **items = PySequence_Fast_ITEMS(value);
    for (Py_ssize_t i = 0; i < count && done == WRITTEN; i++)
        done = write_value(type->element, items[i], writer);
    return done;
}

static int write_versioned(const Type *type, PyObject *value, Writer *writer) {
    PyObject *program;
    Py_ssize_t position = 0;
    /* The version is the value's own. All programs are of the same class. */
    if (!PyDict_Next(type->versions, &position, NULL, &program) || !Py_IS_TYPE(program, &Program_Type) ||
        !Py_IS_TYPE(value, ((Program *)program)->cls) || ((Program *)program)->count == 0)
        return DECLINED;
    PyObject *version = SLOT(value, ((Program *)program)->fields[0].slot);
    if (version == NULL || !PyLong_CheckExact(version))
        return DECLINED;
    program = PyDict_GetItemWithError(type->versions, version);
    if (program == NULL)
        return PyErr_Occurred() ? FAILED : DECLINED;
    return Py_IS_TYPE(program, &Program_Type) ? write_fields((Program *)program, value, writer) : DECLINED;
}

static int write_value(const Type *type, PyObject *value, Writer *writer) {
    switch (type->kind) {
    case K_BOOL: {
        if (value != Py_True && value != Py_False)
            return DECLINED;
        TAKE(p, 1);
        *p = value == Py_True;
        return WRITTEN;
    }
    case K_INT8:
    case K_INT16:
    case K_INT32:
    case K_INT64:
    case K_UINT8:
    case K_UINT16:
    case K_UINT32:
    case K_UINT64:
        return write_integer(type->kind, value, writer);
    case K_FLOAT32:
    case K_FLOAT64:
        return write_float(type->kind, value, writer);
    case K_UUID:
        return write_uuid(value, writer);
    case K_VARINT:
    case K_VARLONG:
    case K_UVARINT:
    case K_UVARLONG:
        return write_variable(type->kind, value, writer);
    case K_STRING:
        return write_string(type, value, writer);
    case K_BYTES:
    case K_SIZED:
        return write_bytes(type, value, writer);
    case K_ARRAY:
        return write_array(type, value, writer);
    case K_STRUCT:
    case K_VERSIONED:
        if (type->nullable) {
            TAKE(p, 1);
            *p = value == Py_None ? type->null : 1;
            if (value == Py_None)
                return WRITTEN;
        }
        return type->kind == K_STRUCT ? write_fields(type->program, value, writer)
                                      : write_versioned(type, value, writer);
    }
    return DECLINED;
}

/* Whether a value is a field's default: 1, 0, or what write functions return. */
static int is_default(const Field *field, PyObject *value) {
    if (field->default_kind != D_VALUE && value == Py_None)
        return 0;
    if (field->default_kind == D_LIST)
        return PyList_CheckExact(value) || PyTuple_CheckExact(value) ? PySequence_Fast_GET_SIZE(value) == 0 : DECLINED;
    if (field->default_kind == D_STRUCT)
        return holds_defaults(field->program, value);
    PyObject *usual = field->value;
    if (usual == Py_None || value == Py_None)
        return usual == value;
    if (usual == value && !PyFloat_CheckExact(value))
        return 1;
    /* Equality of these types runs no Python code. */
    if (PyUnicode_CheckExact(usual) ? PyUnicode_CheckExact(value)
        : PyBool_Check(usual)       ? PyBool_Check(value)
        : PyBytes_CheckExact(usual) ? PyBytes_CheckExact(value)
        : PyFloat_CheckExact(usual) ? PyFloat_CheckExact(value)
                                    : PyLong_CheckExact(usual) && PyLong_Check(value) &&
                                          Py_TYPE(value)->tp_richcompare == PyLong_Type.tp_richcompare) {
        PyObject *same = Py_TYPE(usual)->tp_richcompare(usual, value, Py_EQ);
        if (same == NULL)
            return FAILED;
        int answer = same == Py_True;
        Py_DECREF(same);
        return answer;
    }
    if (Py_IS_TYPE(usual, uuid_type) && Py_IS_TYPE(value, uuid_type)) {
        PyObject *ours = SLOT(usual, uuid_int), *theirs = SLOT(value, uuid_int);
        if (ours != NULL && theirs != NULL && PyLong_CheckExact(ours) && PyLong_CheckExact(theirs))
            return PyObject_RichCompareBool(ours, theirs, Py_EQ);
    }
    return DECLINED;
}

static int holds_defaults(const Program *program, PyObject *object) {
    if (!Py_IS_TYPE(object, program->cls))
        return DECLINED;
    PyObject *unknown = SLOT(object, program->unknown_slot);
    if (unknown == NULL || (unknown != Py_None && !PyDict_CheckExact(unknown)))
        return DECLINED;
    if (unknown != Py_None && PyDict_GET_SIZE(unknown))
        return 0;
    int all = 1;
    for (Py_ssize_t i = 0; i < program->count + program->tags + program->absent; i++) {
        const Field *field = &program->fields[i];
        PyObject *value = SLOT(object, field->slot);
        /* Comparing structs compares their values by identity first, which decides about a nan. */
        if (value == NULL || PyFloat_CheckExact(value))
            return DECLINED;
        int same = is_default(field, value);
        if (same < 0)
            return same;
        all &= same;
    }
    return all;
}

static int compare_tags(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* Write one tagged field that the definition does not know. */
static int write_unknown(uint32_t tag, PyObject *unknown, Writer *writer) {
    PyObject *key = PyLong_FromUnsignedLong(tag);
    if (key == NULL)
        return FAILED;
    PyObject *data = PyDict_GetItemWithError(unknown, key);
    Py_DECREF(key);
    if (data == NULL || !PyBytes_CheckExact(data))
        return PyErr_Occurred() ? FAILED : DECLINED;
    Py_ssize_t size = PyBytes_GET_SIZE(data);
    int done = write_varint(tag, writer);
    if (done == WRITTEN)
        done = size > UINT32_MAX ? DECLINED : write_varint((uint64_t)size, writer);
    return done == WRITTEN ? write_raw(PyBytes_AS_STRING(data), size, writer) : done;
}

/* Write tag, size and bytes of a field. The size goes before the bytes when they are written. */
static int write_tagged(const Field *field, PyObject *value, Writer *writer) {
    int done = write_varint(field->tag, writer);
    Py_ssize_t begin = writer->size;
    if (done == WRITTEN)
        done = write_value(&field->type, value, writer);
    if (done < 0)
        return done;
    Py_ssize_t size = writer->size - begin;
    if (size > UINT32_MAX)
        return DECLINED;
    int width = varint_size((uint64_t)size);
    TAKE(end, width);
    (void)end;
    memmove(writer->data + begin + width, writer->data + begin, (size_t)size);
    put_varint(writer->data + begin, (uint64_t)size);
    return WRITTEN;
}

/* More unknown tags than this are left to pure Python. */
#define MAX_UNKNOWN 32

static int write_tags(const Program *program, PyObject *object, Writer *writer) {
    const Field *known = program->fields + program->count;
    PyObject *unknown = SLOT(object, program->unknown_slot);
    uint64_t tags[MAX_UNKNOWN];
    Py_ssize_t others = 0, count = 0;
    if (unknown == NULL)
        return DECLINED;
    if (unknown != Py_None) {
        PyObject *key;
        Py_ssize_t position = 0;
        if (!PyDict_CheckExact(unknown) || PyDict_GET_SIZE(unknown) > MAX_UNKNOWN)
            return DECLINED;
        while (PyDict_Next(unknown, &position, &key, NULL)) {
            int overflow;
            if (!PyLong_CheckExact(key))
                return DECLINED;
            long long tag = PyLong_AsLongLongAndOverflow(key, &overflow);
            if (overflow || tag != (uint32_t)tag)
                return DECLINED;
            for (Py_ssize_t i = 0; i < program->tags; i++)
                if (known[i].tag == (uint32_t)tag)
                    return DECLINED;
            tags[others++] = (uint64_t)tag;
        }
        qsort(tags, (size_t)others, sizeof *tags, compare_tags);
    }
    /* The number of fields, for which one byte is enough until it is known. */
    Py_ssize_t place = writer->size;
    if (program->tags + others > 127)
        return DECLINED;
    TAKE(first, 1);
    (void)first;
    Py_ssize_t next = 0;
    for (Py_ssize_t i = 0; i <= program->tags; i++) {
        for (; next < others && (i == program->tags || tags[next] < known[i].tag); next++, count++) {
            int done = write_unknown((uint32_t)tags[next], unknown, writer);
            if (done < 0)
                return done;
        }
        if (i == program->tags)
            break;
        PyObject *value = SLOT(object, known[i].slot);
        if (value == NULL)
            return DECLINED;
        int same = is_default(&known[i], value);
        if (same == 1)
            continue;
        int done = same < 0 ? same : write_tagged(&known[i], value, writer);
        if (done < 0)
            return done;
        count++;
    }
    writer->data[place] = (uint8_t)count;
    return WRITTEN;
}

/* Write the size of the bytes that a length field counts, plus a number. */
static int write_counted(const Field *field, PyObject *object, Writer *writer) {
    PyObject *counted = SLOT(object, field->counted);
    if (counted == NULL)
        return DECLINED;
    Py_buffer view;
    int done = open_bytes(counted, &view);
    if (done < 0)
        return done;
    long long size = view.len;
    if (view.obj != NULL)
        PyBuffer_Release(&view);
    if (__builtin_add_overflow(size, field->plus, &size))
        return DECLINED;
    PyObject *number = PyLong_FromLongLong(size);
    if (number == NULL)
        return FAILED;
    done = write_integer(field->type.kind, number, writer);
    Py_DECREF(number);
    return done;
}

static int write_fields(Program *program, PyObject *object, Writer *writer) {
    if (!Py_IS_TYPE(object, program->cls))
        return DECLINED;
    const Field *field = program->fields, *end = field + program->count;
    for (; field < end; field++) {
        PyObject *value = SLOT(object, field->slot);
        if (value == NULL)
            return DECLINED;
        int done = field->counted ? write_counted(field, object, writer) : write_value(&field->type, value, writer);
        if (done < 0)
            return done;
    }
    field += program->tags;
    for (end = field + program->absent; field < end; field++) {
        PyObject *value = SLOT(object, field->slot);
        if (value == NULL)
            return DECLINED;
        if (field->ignorable)
            continue;
        int same = is_default(field, value);
        if (same != 1)
            return same < 0 ? same : DECLINED;
    }
    return program->flexible ? write_tags(program, object, writer) : WRITTEN;
}

PyObject *finish(Writer *writer) {
    if (writer->owner == NULL)
        return PyBytes_FromStringAndSize((const char *)writer->data, writer->size);
    if (writer->size != writer->room)
        _PyBytes_Resize(&writer->owner, writer->size);
    return writer->owner;
}

PyObject *encode(Program *program, PyObject *value) {
    uint8_t first[FIRST_SIZE];
    Writer writer = {.data = first, .room = FIRST_SIZE};
    int done = write_fields(program, value, &writer);
    if (done < 0) {
        Py_XDECREF(writer.owner);
        return NULL;
    }
    return finish(&writer);
}

int encode_into(Program *program, PyObject *value, PyObject *out) {
    uint8_t first[FIRST_SIZE];
    Writer writer = {.data = first, .room = FIRST_SIZE};
    int done = write_fields(program, value, &writer);
    if (done == WRITTEN) {
        Py_ssize_t before = PyByteArray_GET_SIZE(out);
        done = PyByteArray_Resize(out, before + writer.size);
        if (done == 0)
            memcpy(PyByteArray_AS_STRING(out) + before, writer.data, (size_t)writer.size);
    }
    Py_XDECREF(writer.owner);
    return done;
}
