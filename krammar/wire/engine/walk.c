/* Walking over bytes without making objects: the places of marked fields, and the number of elements. */
#include "reader.h"

/* Length fields in one struct. Structs with more are left to pure Python. */
#define MAX_COUNTED 4

typedef struct {
    Reader reader;
    int64_t left; /* elements before the limit */
    bool exceeded;
    PyObject *marks;  /* a tuple of entities */
    PyObject *places; /* a list, or NULL if elements are counted */
    bool tagged;      /* tagged fields are marked */
} Walk;

/* What a field of its length said about counted bytes: their slot, and the number. */
typedef struct {
    Py_ssize_t slot;
    int64_t size;
} Counted;

/* The mark of tagged fields, as krammar/wire/skip.py says. */
static PyObject *tagged_field;

int prepare_walks(void) {
    tagged_field = PyUnicode_InternFromString("tagged field");
    return tagged_field == NULL ? -1 : 0;
}

/* All of these return false, with an exception or without one, if the walk cannot go on. */
static bool walk_fields(Walk *walk, const Program *program);
static bool walk_value(Walk *walk, const Type *type, PyObject *mark);

static inline bool pass(Walk *walk, int64_t size) {
    if (size > left(&walk->reader))
        return false;
    walk->reader.next += size;
    return true;
}

static inline bool count_elements(Walk *walk, int64_t number) {
    walk->left -= number;
    walk->exceeded = walk->left < 0;
    return !walk->exceeded;
}

/* Add (mark, begin, content, end). The content of null is -1. */
static bool add_place(Walk *walk, PyObject *mark, const uint8_t *begin, const uint8_t *content, const uint8_t *end) {
    const uint8_t *data = walk->reader.data;
    PyObject *place = PyTuple_New(4);
    if (place == NULL)
        return false;
    PyTuple_SET_ITEM(place, 0, Py_NewRef(mark));
    Py_ssize_t numbers[] = {begin - data, content == NULL ? -1 : content - data, end - data};
    for (int i = 0; i < 3; i++) {
        PyObject *number = PyLong_FromSsize_t(numbers[i]);
        if (number == NULL) {
            Py_DECREF(place);
            return false;
        }
        PyTuple_SET_ITEM(place, i + 1, number);
    }
    int failed = PyList_Append(walk->places, place);
    Py_DECREF(place);
    return !failed;
}

/* The mark of an entity: the entity, or NULL. Entities of programs are interned, and nearly always those of marks too. */
static PyObject *mark_of(const Walk *walk, PyObject *entity) {
    if (entity == NULL || walk->marks == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(walk->marks); i++)
        if (PyTuple_GET_ITEM(walk->marks, i) == entity)
            return entity;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(walk->marks); i++)
        if (PyUnicode_Compare(PyTuple_GET_ITEM(walk->marks, i), entity) == 0)
            return entity;
    return NULL;
}

/* Read a length or count that is allowed. Encoding writes null as -1, so other bytes for it have no place that can be
   changed. */
static bool walk_length(Walk *walk, const Type *type, int64_t *length) {
    if (!read_length(&walk->reader, type->prefix, length))
        return false;
    return *length >= 0 || (type->nullable && (*length == -1 || walk->places == NULL));
}

static bool walk_struct(Walk *walk, const Type *type) {
    if (type->kind == K_STRUCT)
        return walk_fields(walk, type->program);
    if (left(&walk->reader) < 2)
        return false;
    PyObject *version = PyLong_FromLong((int16_t)get16(walk->reader.next));
    if (version == NULL)
        return false;
    PyObject *program = PyDict_GetItemWithError(type->versions, version);
    Py_DECREF(version);
    return program != NULL && Py_IS_TYPE(program, &Program_Type) && walk_fields(walk, (Program *)program);
}

static bool walk_array(Walk *walk, const Type *type, PyObject *mark) {
    const Type *element = type->element;
    Reader *reader = &walk->reader;
    int64_t count;
    if (!walk_length(walk, type, &count))
        return false;
    if (count <= 0)
        return true;
    if (!count_elements(walk, count))
        return false;
    if (element->min_size) {
        if (count > left(reader) / element->min_size)
            return false;
    } else {
        if (count > MAX_ZERO_WIDTH - reader->empty)
            return false;
        reader->empty += (uint32_t)count;
    }
    if (element->kind < K_VARINT && mark == NULL)
        return pass(walk, count * element->min_size);
    bool structs = element->kind == K_STRUCT || element->kind == K_VERSIONED;
    for (; count; count--) {
        if (!structs) {
            if (!walk_value(walk, element, mark))
                return false;
            continue;
        }
        int presence = element->nullable ? read_presence(element, reader) : 1;
        if (presence < 0 || (presence && !walk_struct(walk, element)))
            return false;
    }
    return true;
}

static bool walk_value(Walk *walk, const Type *type, PyObject *mark) {
    Reader *reader = &walk->reader;
    const uint8_t *begin = reader->next, *content = begin;
    int64_t size;
    uint64_t number;
    switch (type->kind) {
    case K_STRING:
    case K_BYTES:
        if (!walk_length(walk, type, &size))
            return false;
        content = size < 0 ? NULL : reader->next;
        if (size > 0 && !pass(walk, size))
            return false;
        break;
    case K_VARINT:
    case K_UVARINT:
    case K_VARLONG:
    case K_UVARLONG:
        if (!read_varint(reader, type->kind == K_VARINT || type->kind == K_UVARINT ? 32 : 64, &number))
            return false;
        break;
    case K_ARRAY:
        return walk_array(walk, type, mark);
    case K_STRUCT:
    case K_VERSIONED:
        if (type->nullable) {
            int presence = read_presence(type, reader);
            if (presence < 1)
                return presence == 0;
        }
        return count_elements(walk, 1) && walk_struct(walk, type);
    case K_SIZED:
        return false; /* walk_fields */
    default:
        if (!pass(walk, type->min_size))
            return false;
    }
    return mark == NULL || add_place(walk, mark, begin, content, reader->next);
}

static bool walk_tags(Walk *walk, const Program *program) {
    Reader *reader = &walk->reader;
    uint64_t count, tag, size;
    if (!read_varint(reader, 32, &count) || !count_elements(walk, (int64_t)count))
        return false;
    int64_t before = -1;
    const Field *known = program->fields + program->count, *end = known + program->tags;
    for (; count; count--) {
        const uint8_t *begin = reader->next;
        if (!read_varint(reader, 32, &tag) || !read_varint(reader, 32, &size) || (int64_t)tag <= before ||
            (int64_t)size > left(reader))
            return false;
        before = (int64_t)tag;
        const uint8_t *after = reader->next + size;
        if (walk->tagged && !add_place(walk, tagged_field, begin, reader->next, after))
            return false;
        while (known < end && known->tag < tag)
            known++;
        if (known == end || known->tag != tag)
            reader->next = after;
        else if (!walk_value(walk, &known->type, mark_of(walk, known->entity)) || reader->next != after)
            return false;
    }
    return true;
}

/* Read a length field, and remember the size of the bytes that it counts. Returns false for more than fit. */
static bool note_length(const Field *field, const uint8_t *p, Counted *counted, int *known) {
    int64_t value;
    switch (field->type.kind) {
    case K_INT8:
        value = (int8_t)*p;
        break;
    case K_UINT8:
        value = *p;
        break;
    case K_INT16:
        value = (int16_t)get16(p);
        break;
    case K_UINT16:
        value = get16(p);
        break;
    case K_INT32:
        value = (int32_t)get32(p);
        break;
    case K_UINT32:
        value = get32(p);
        break;
    default:
        value = (int64_t)get64(p); /* what is beyond an int64 becomes negative, and is declined */
    }
    if (*known == MAX_COUNTED)
        return false;
    counted[(*known)++] = (Counted){field->slot, value};
    return true;
}

/* Pass the bytes that a length field before them counts. */
static bool walk_sized(Walk *walk, const Type *type, const Counted *counted, int known) {
    while (known && counted[known - 1].slot != type->slot)
        known--;
    int64_t size;
    return known && !__builtin_sub_overflow(counted[known - 1].size, type->plus, &size) && size >= 0 &&
           pass(walk, size);
}

static bool walk_fields(Walk *walk, const Program *program) {
    Reader *reader = &walk->reader;
    if (left(reader) < program->min_size)
        return false;
    Counted counted[MAX_COUNTED];
    int known = 0;
    const Field *field = program->fields, *end = field + program->count;
    for (; field < end; field++) {
        const Type *type = &field->type;
        if (type->kind == K_SIZED) {
            const uint8_t *begin = reader->next;
            PyObject *mark = mark_of(walk, field->entity);
            if (!walk_sized(walk, type, counted, known) ||
                (mark != NULL && !add_place(walk, mark, begin, begin, reader->next)))
                return false;
            continue;
        }
        const uint8_t *begin = reader->next;
        if (!walk_value(walk, type, mark_of(walk, field->entity)) ||
            (field->counted && !note_length(field, begin, counted, &known)))
            return false;
    }
    return !program->flexible || walk_tags(walk, program);
}

static bool read_position(PyObject *given, Py_ssize_t most, Py_ssize_t *position) {
    if (!PyLong_CheckExact(given))
        return false;
    *position = PyLong_AsSsize_t(given);
    if (*position == -1 && PyErr_Occurred())
        PyErr_Clear();
    return *position >= 0 && *position <= most;
}

static PyObject *wrong_call(const char *name) {
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "invalid arguments of %s", name);
    return NULL;
}

/* exceeds(data, position, limit) -> bool | None */
static PyObject *exceeds(Program *self, PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t position, limit;
    if (count != 3 || !PyBytes_CheckExact(args[0]) ||
        !read_position(args[1], PyBytes_GET_SIZE(args[0]), &position) ||
        !read_position(args[2], PY_SSIZE_T_MAX, &limit))
        return wrong_call("exceeds");
    const uint8_t *start = (const uint8_t *)PyBytes_AS_STRING(args[0]);
    Walk walk = {
        .reader = {.data = start, .next = start + position, .end = start + PyBytes_GET_SIZE(args[0])},
        .left = limit,
    };
    if (walk_fields(&walk, self))
        Py_RETURN_FALSE;
    if (PyErr_Occurred())
        return NULL;
    if (walk.exceeded)
        Py_RETURN_TRUE;
    Py_RETURN_NONE;
}

static bool read_marks(PyObject *marks, Walk *walk) {
    if (!PyTuple_CheckExact(marks))
        return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(marks); i++) {
        PyObject *mark = PyTuple_GET_ITEM(marks, i);
        if (!PyUnicode_Check(mark))
            return false;
        if (PyUnicode_Compare(mark, tagged_field) == 0)
            walk->tagged = true;
    }
    walk->marks = marks;
    return true;
}

/* places(data, begin, end, marks) -> (position, [(mark, begin, content, end)]) | None */
static PyObject *places(Program *self, PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t begin, end;
    Walk walk = {.left = INT64_MAX};
    Py_buffer buffer;
    if (count != 4 || !read_marks(args[3], &walk))
        return wrong_call("places");
    if (PyObject_GetBuffer(args[0], &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *found = NULL;
    if (!read_position(args[2], buffer.len, &end) || !read_position(args[1], end, &begin)) {
        wrong_call("places");
    } else if ((walk.places = PyList_New(0)) != NULL) {
        const uint8_t *start = buffer.buf;
        walk.reader = (Reader){.data = start, .next = start + begin, .end = start + end};
        if (walk_fields(&walk, self))
            found = Py_BuildValue("(nO)", walk.reader.next - start, walk.places);
        else if (!PyErr_Occurred())
            found = Py_NewRef(Py_None);
        Py_DECREF(walk.places);
    }
    PyBuffer_Release(&buffer);
    return found;
}

PyMethodDef walk_methods[] = {
    {"exceeds", (PyCFunction)(void (*)(void))exceeds, METH_FASTCALL,
     PyDoc_STR("exceeds($self, data, position, limit, /)\n--\n\nReturn whether a struct has more elements than a limit; "
               "None if the engine declines.")},
    {"places", (PyCFunction)(void (*)(void))places, METH_FASTCALL,
     PyDoc_STR("places($self, data, begin, end, marks, /)\n--\n\nReturn the position after a struct, and the places of "
               "marked fields; None if the engine declines.")},
    {NULL, NULL, 0, NULL},
};
