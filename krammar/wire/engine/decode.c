/* Reading: from bytes to objects. */
#include "reader.h"

#include <string.h>

/* Without an exception: the engine declines. */
static PyObject *const DECLINED = NULL;

static PyObject *read_fields(Program *program, PyTypeObject *cls, Reader *reader);

static PyObject *read_slice(Reader *reader, Py_ssize_t size) {
    Py_ssize_t begin = reader->next - reader->data;
    reader->next += size;
    if (reader->copy)
        return PyBytes_FromStringAndSize((const char *)reader->data + begin, size);
    return PySequence_GetSlice(reader->owner, begin, begin + size);
}

/* Whether all bytes are ASCII: eight at a time, wherever they begin. */
static inline bool is_ascii(const uint8_t *p, Py_ssize_t size) {
    uint64_t some;
    const uint8_t *end = p + size;
    for (; end - p >= 8; p += 8) {
        memcpy(&some, p, 8);
        if (some & 0x8080808080808080)
            return false;
    }
    for (; p < end; p++) {
        if (*p >= 128)
            return false;
    }
    return true;
}

static PyObject *read_string(Reader *reader, Py_ssize_t size) {
    const uint8_t *p = reader->next;
    PyObject *text;
    reader->next += size;
    if (is_ascii(p, size)) { /* a tenth less time for messages of names than PyUnicode_DecodeUTF8 */
        text = PyUnicode_New(size, 127);
        if (text != NULL && size)
            memcpy(PyUnicode_DATA(text), p, (size_t)size);
        return text;
    }
    text = PyUnicode_DecodeUTF8((const char *)p, size, NULL);
    if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        PyErr_Clear();
    return text;
}

static PyObject *read_text(const Type *type, Reader *reader) {
    int64_t size;
    if (!read_length(reader, type->prefix, &size))
        return DECLINED;
    if (size < 0)
        return type->nullable ? Py_NewRef(Py_None) : DECLINED;
    if (size > left(reader))
        return DECLINED;
    if (type->kind == K_BYTES)
        return read_slice(reader, (Py_ssize_t)size);
    return read_string(reader, (Py_ssize_t)size);
}

static PyObject *read_uuid(const uint8_t *p) {
    if (get64(p) == 0 && get64(p + 8) == 0)
        return Py_NewRef(uuid_null);
    PyObject *number = _PyLong_FromByteArray(p, 16, 0, 0);
    if (number == NULL)
        return NULL;
    PyObject *made = uuid_type->tp_alloc(uuid_type, 0);
    if (made == NULL) {
        Py_DECREF(number);
        return NULL;
    }
    SLOT(made, uuid_int) = number;
    SLOT(made, uuid_safe) = Py_NewRef(uuid_unknown);
    return made;
}

static inline PyObject *read_value(const Type *type, Reader *reader);

static PyObject *read_array(const Type *type, Reader *reader) {
    const Type *element = type->element;
    int64_t count;
    if (!read_length(reader, type->prefix, &count))
        return DECLINED;
    if (count < 0)
        return type->nullable ? Py_NewRef(Py_None) : DECLINED;
    if (element->min_size) {
        if (count > left(reader) / element->min_size)
            return DECLINED;
    } else {
        if (count > MAX_ZERO_WIDTH - reader->empty)
            return DECLINED;
        reader->empty += (uint32_t)count;
    }
    PyObject *list = PyList_New(count < FIRST_ELEMENTS ? (Py_ssize_t)count : FIRST_ELEMENTS);
    if (list == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = read_value(element, reader);
        if (value == NULL || add_element(list, i, value) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *read_versioned(const Type *type, Reader *reader) {
    Program *program = program_at(type, reader);
    return program == NULL ? NULL : read_fields(program, program->cls, reader);
}

#define FIXED(width, expression)                                                                                       \
    if (left(reader) < width)                                                                                          \
        return DECLINED;                                                                                               \
    p = reader->next;                                                                                                  \
    reader->next = p + width;                                                                                          \
    return expression

#define VARINT(bits, expression)                                                                                       \
    if (!read_varint(reader, bits, &number))                                                                           \
        return DECLINED;                                                                                               \
    return expression

static PyObject *read_long_value(const Type *type, Reader *reader);

/* Compilers do not inline it by themselves: without that, arrays of numbers take a tenth longer. */
static inline __attribute__((always_inline)) PyObject *read_value(const Type *type, Reader *reader) {
    const uint8_t *p;
    uint64_t number;
    switch (type->kind) {
    case K_BOOL:
        FIXED(1, Py_NewRef(*p ? Py_True : Py_False));
    case K_INT8:
        FIXED(1, make_int((int8_t)*p));
    case K_INT16:
        FIXED(2, make_int((int16_t)get16(p)));
    case K_INT32:
        FIXED(4, make_int((int32_t)get32(p)));
    case K_INT64:
        FIXED(8, make_int((int64_t)get64(p)));
    case K_UINT8:
        FIXED(1, make_int(*p));
    case K_UINT16:
        FIXED(2, make_int(get16(p)));
    case K_UINT32:
        FIXED(4, make_int(get32(p)));
    case K_UINT64:
        FIXED(8, PyLong_FromUnsignedLongLong(get64(p)));
    case K_FLOAT32:
        FIXED(4, PyFloat_FromDouble(PyFloat_Unpack4((const char *)p, 0)));
    case K_FLOAT64:
        FIXED(8, PyFloat_FromDouble(PyFloat_Unpack8((const char *)p, 0)));
    case K_UUID:
        FIXED(16, read_uuid(p));
    case K_VARINT:
    case K_UVARINT:
        VARINT(32, make_int(type->kind == K_VARINT ? unzigzag(number) : (int64_t)number));
    case K_VARLONG:
        VARINT(64, make_int(unzigzag(number)));
    case K_UVARLONG:
        VARINT(64, PyLong_FromUnsignedLongLong(number));
    default:
        return read_long_value(type, reader);
    }
}

/* Not inlined, unlike the numbers above. */
static PyObject *read_long_value(const Type *type, Reader *reader) {
    switch (type->kind) {
    case K_STRING:
    case K_BYTES:
        return read_text(type, reader);
    case K_ARRAY:
        return read_array(type, reader);
    case K_STRUCT:
    case K_VERSIONED:
        if (type->nullable) {
            int presence = read_presence(type, reader);
            if (presence < 1)
                return presence < 0 ? DECLINED : Py_NewRef(Py_None);
        }
        if (type->kind == K_VERSIONED)
            return read_versioned(type, reader);
        return read_fields(type->program, type->program->cls, reader);
    default:
        return DECLINED; /* counted bytes: read_sized */
    }
}

/* Read the bytes whose number another field of the object has. */
static PyObject *read_sized(const Type *type, PyObject *object, Reader *reader) {
    PyObject *length = SLOT(object, type->slot);
    if (length == NULL || !PyLong_CheckExact(length))
        return DECLINED;
    int overflow;
    long long size = PyLong_AsLongLongAndOverflow(length, &overflow);
    if (overflow || __builtin_sub_overflow(size, type->plus, &size) || size < 0 || size > left(reader))
        return DECLINED;
    return read_slice(reader, (Py_ssize_t)size);
}

static inline void replace(PyObject **slot, PyObject *value) {
    PyObject *before = *slot;
    *slot = value;
    Py_XDECREF(before);
}

/* Read the tagged fields of an object whose fields have their defaults. Returns -1 as decode returns NULL. */
static int read_tags(Program *program, PyObject *object, Reader *reader) {
    uint64_t count, tag, size;
    if (!read_varint(reader, 32, &count))
        return -1;
    int64_t before = -1;
    const Field *known = program->fields + program->count, *end = known + program->tags;
    PyObject *unknown = NULL;
    for (; count; count--) {
        if (!read_varint(reader, 32, &tag) || !read_varint(reader, 32, &size) || (int64_t)tag <= before ||
            (int64_t)size > left(reader))
            goto failed;
        before = (int64_t)tag;
        while (known < end && known->tag < tag)
            known++;
        const uint8_t *after = reader->next + size;
        if (known < end && known->tag == tag) {
            PyObject *value = read_value(&known->type, reader);
            if (value == NULL)
                goto failed;
            replace(&SLOT(object, known->slot), value);
            if (reader->next != after)
                goto failed;
            continue;
        }
        if (unknown == NULL && (unknown = PyDict_New()) == NULL)
            goto failed;
        PyObject *key = PyLong_FromUnsignedLongLong(tag);
        PyObject *value = PyBytes_FromStringAndSize((const char *)reader->next, (Py_ssize_t)size);
        int added = key != NULL && value != NULL ? PyDict_SetItem(unknown, key, value) : -1;
        Py_XDECREF(key);
        Py_XDECREF(value);
        if (added < 0)
            goto failed;
        reader->next = after;
    }
    if (unknown != NULL)
        replace(&SLOT(object, program->unknown_slot), unknown);
    return 0;
failed:
    Py_XDECREF(unknown);
    return -1;
}

static PyObject *read_fields(Program *program, PyTypeObject *cls, Reader *reader) {
    if (left(reader) < program->min_size)
        return DECLINED;
    PyObject *object = cls->tp_alloc(cls, 0);
    if (object == NULL)
        return NULL;
    SLOT(object, program->unknown_slot) = Py_NewRef(Py_None);
    const Field *field = program->fields, *end = field + program->count;
    for (; field < end; field++) {
        PyObject *value = field->type.kind == K_SIZED ? read_sized(&field->type, object, reader)
                                                      : read_value(&field->type, reader);
        if (value == NULL)
            goto failed;
        SLOT(object, field->slot) = value;
    }
    for (end += program->tags + program->absent; field < end; field++) {
        PyObject *value = default_of(field);
        if (value == NULL)
            goto failed;
        SLOT(object, field->slot) = value;
    }
    if (program->flexible && read_tags(program, object, reader) < 0)
        goto failed;
    return object;
failed:
    Py_DECREF(object);
    return NULL;
}

PyObject *decode(Program *program, PyTypeObject *cls, PyObject *data, Py_ssize_t *position, bool copy) {
    const uint8_t *start = (const uint8_t *)PyBytes_AS_STRING(data);
    Reader reader = {
        .next = start + *position, .end = start + PyBytes_GET_SIZE(data), .data = start, .owner = data, .copy = copy};
    PyObject *view = NULL;
    if (!copy) {
        view = reader.owner = PyMemoryView_FromObject(data);
        if (view == NULL)
            return NULL;
    }
    bool collects = pause_collector();
    PyObject *found = read_fields(program, cls, &reader);
    resume_collector(collects);
    Py_XDECREF(view);
    *position = reader.next - start;
    return found;
}
