/* Walking over bytes without making objects: the places of marked fields, the number of elements, and other bytes at
   places. */
#include "reader.h"
#include "writer.h"

#include <string.h>

/* Length fields in one struct. Structs with more are left to pure Python. */
#define MAX_COUNTED 4
/* Copying so many bytes takes no longer than making a view of them. */
#define SMALL_FRAME 4096

/* A text that is not null: where its length begins, where its content begins, and where it ends. */
typedef struct {
    Py_ssize_t begin, content, end;
} Text;

/* Texts in the order of the bytes; nearly always few. */
typedef struct {
    Text few[16], *all;
    Py_ssize_t count, room;
} Texts;

typedef struct {
    Reader reader;
    int64_t left; /* elements before the limit */
    bool exceeded;
    PyObject *marks;  /* a tuple of entities */
    PyObject *places; /* a list, or NULL if elements are counted */
    bool tagged;      /* tagged fields are marked */
    PyObject *names;  /* a tuple of those marks whose places are texts, not in the list; or NULL */
    Texts *texts;
} Walk;

/* What a field of its length said about counted bytes: their slot, and the number. */
typedef struct {
    Py_ssize_t slot;
    int64_t size;
} Counted;

/* The mark of tagged fields, as krammar/wire/skip.py says. */
static PyObject *tagged_field;

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

static bool add_text(Texts *texts, Py_ssize_t begin, Py_ssize_t content, Py_ssize_t end) {
    if (texts->count == texts->room) {
        Py_ssize_t room = 4 * texts->room;
        Text *more = PyMem_Malloc((size_t)room * sizeof *more);
        if (more == NULL) {
            PyErr_NoMemory();
            return false;
        }
        memcpy(more, texts->all, (size_t)texts->count * sizeof *more);
        if (texts->all != texts->few)
            PyMem_Free(texts->all);
        texts->all = more;
        texts->room = room;
    }
    texts->all[texts->count++] = (Text){begin, content, end};
    return true;
}

static void start_texts(Texts *texts) {
    texts->all = texts->few;
    texts->count = 0;
    texts->room = Py_ARRAY_LENGTH(texts->few);
}

static void free_texts(Texts *texts) {
    if (texts->all != texts->few)
        PyMem_Free(texts->all);
}

/* Whether a tuple of strings has one. Nearly always they are interned, and so the same objects. */
static bool has(PyObject *marks, PyObject *name) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(marks); i++)
        if (PyTuple_GET_ITEM(marks, i) == name)
            return true;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(marks); i++)
        if (PyUnicode_Compare(PyTuple_GET_ITEM(marks, i), name) == 0)
            return true;
    return false;
}

/* Add (mark, begin, content, end). The content of null is -1. Beside names, null is left out. */
static bool add_place(Walk *walk, PyObject *mark, const uint8_t *begin, const uint8_t *content, const uint8_t *end) {
    const uint8_t *data = walk->reader.data;
    if (walk->names != NULL) {
        if (content == NULL)
            return true;
        if (has(walk->names, mark))
            return add_text(walk->texts, begin - data, content - data, end - data);
    }
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

/* The mark of an entity: the entity, or NULL. */
static inline PyObject *mark_of(const Walk *walk, PyObject *entity) {
    return entity != NULL && walk->marks != NULL && has(walk->marks, entity) ? entity : NULL;
}

/* Read a length or count that is allowed. Encoding writes null as -1, so other bytes for it have no place that can be
   changed. */
static bool walk_length(Walk *walk, const Type *type, int64_t *length) {
    if (!read_length(&walk->reader, type->prefix, length))
        return false;
    return *length >= 0 || (type->nullable && (*length == -1 || walk->places == NULL));
}

static bool walk_struct(Walk *walk, const Type *type) {
    const Program *program = type->kind == K_STRUCT ? type->program : program_at(type, &walk->reader);
    return program != NULL && walk_fields(walk, program);
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

static bool are_strings(PyObject *marks) {
    if (!PyTuple_CheckExact(marks))
        return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(marks); i++)
        if (!PyUnicode_Check(PyTuple_GET_ITEM(marks, i)))
            return false;
    return true;
}

/* places(data, begin, end, marks) -> (position, [(mark, begin, content, end)]) | None */
static PyObject *places(Program *self, PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t begin, end;
    Walk walk = {.left = INT64_MAX};
    Py_buffer buffer;
    if (count != 4 || !are_strings(args[3]))
        return wrong_call("places");
    walk.marks = args[3];
    walk.tagged = has(args[3], tagged_field);
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

/* The arguments of change, and the names that the walk has found. */
typedef struct {
    const uint8_t *data;
    Py_ssize_t begin, end;
    Texts texts;
    PyObject *names;
    const char *prefix;
    Py_ssize_t size; /* of the prefix */
    bool adds, compact;
} Splice;

/* The bytes of a length before a text. Returns how many, or 0 if it is too large. */
static Py_ssize_t put_length(uint8_t *out, Py_ssize_t length, bool compact) {
    if (!compact) {
        put16(out, (uint16_t)length);
        return length > INT16_MAX ? 0 : 2;
    }
    if (length >= UINT32_MAX)
        return 0;
    put_varint(out, (uint64_t)length + 1);
    return varint_size((uint64_t)length + 1);
}

/* Write the bytes of the frame up to its last name. Returns how many, or -1 if the frame has a name without the prefix or
   one that becomes too long; `rest` is where the other bytes begin. */
static Py_ssize_t put_names(const Splice *self, uint8_t *out, Py_ssize_t *rest) {
    uint8_t *next = out + 4; /* the length of the frame */
    Py_ssize_t start = self->begin + 4;
    for (const Text *text = self->texts.all, *last = text + self->texts.count; text < last; text++) {
        Py_ssize_t length = text->end - text->content + (self->adds ? self->size : -self->size);
        if (length < 0 || (!self->adds && memcmp(self->data + text->content, self->prefix, (size_t)self->size)))
            return -1;
        memcpy(next, self->data + start, (size_t)(text->begin - start));
        next += text->begin - start;
        Py_ssize_t written = put_length(next, length, self->compact);
        if (written == 0)
            return -1;
        next += written;
        if (self->adds) {
            memcpy(next, self->prefix, (size_t)self->size);
            next += self->size;
        }
        start = self->adds ? text->content : text->content + self->size;
    }
    *rest = start;
    return next - out;
}

/* The pieces of a frame with other names. A long rest is a view of the data, because copying it takes longer. */
static PyObject *make_pieces(const Splice *self, PyObject *data) {
    Py_ssize_t most = self->end - self->begin + self->texts.count * (self->size + 5), rest;
    uint8_t few[SMALL_FRAME], *out = most <= SMALL_FRAME ? few : PyMem_Malloc((size_t)most);
    if (out == NULL)
        return PyErr_NoMemory();
    Py_ssize_t written = put_names(self, out, &rest);
    PyObject *pieces = NULL, *view = NULL;
    if (written < 0) {
        pieces = Py_NewRef(Py_None);
        goto done;
    }
    Py_ssize_t left = self->end - rest, size = written + left - 4;
    bool copies = left <= SMALL_FRAME;
    if (copies) {
        memcpy(out + written, self->data + rest, (size_t)left);
        written += left;
    }
    put32(out, (uint32_t)size);
    PyObject *head = PyBytes_FromStringAndSize((const char *)out, written);
    if (head != NULL && !copies && (view = PyMemoryView_FromObject(data)) != NULL) {
        PyObject *tail = PySequence_GetSlice(view, rest, self->end);
        pieces = tail == NULL ? NULL : PyList_New(2);
        if (pieces != NULL) {
            PyList_SET_ITEM(pieces, 0, Py_NewRef(head));
            PyList_SET_ITEM(pieces, 1, Py_NewRef(tail));
        }
        Py_XDECREF(tail);
    } else if (head != NULL && copies && (pieces = PyList_New(1)) != NULL) {
        PyList_SET_ITEM(pieces, 0, Py_NewRef(head));
    }
    Py_XDECREF(head);
    Py_XDECREF(view);
done:
    if (out != few)
        PyMem_Free(out);
    return pieces;
}

/* Read (names, prefix, adds, compact). */
static bool read_splice(PyObject *const *args, Splice *self) {
    if (!are_strings(args[0]) || !PyBytes_CheckExact(args[1]) || !PyBool_Check(args[2]) || !PyBool_Check(args[3]))
        return false;
    self->names = args[0];
    self->prefix = PyBytes_AS_STRING(args[1]);
    self->size = PyBytes_GET_SIZE(args[1]);
    self->adds = args[2] == Py_True;
    self->compact = args[3] == Py_True;
    return true;
}

/* Walk over a frame, and write it with other names: (places, pieces), and None as pieces if the header has tagged fields
   or if the names cannot be changed. Returns NULL, with an exception or without one, if the frame is invalid. */
static PyObject *change_frame(Splice *self, const Program *header, const Program *body, PyObject *marks,
                              PyObject *places, PyObject *data) {
    Walk walk = {
        .reader = {.data = self->data, .next = self->data + self->begin + 4, .end = self->data + self->end},
        .left = INT64_MAX,
        .places = places,
        .tagged = true,
        .names = self->names,
        .texts = &self->texts,
    };
    if (!walk_fields(&walk, header))
        return NULL;
    if (PyList_GET_SIZE(places))
        return PyTuple_Pack(2, places, Py_None);
    walk.marks = marks;
    walk.tagged = has(marks, tagged_field);
    if (!walk_fields(&walk, body) || walk.reader.next != walk.reader.end)
        return NULL;
    PyObject *pieces = make_pieces(self, data);
    PyObject *found = pieces == NULL ? NULL : PyTuple_Pack(2, places, pieces);
    Py_XDECREF(pieces);
    return found;
}

/* change(header, data, begin, end, marks, names, prefix, adds, compact) -> (places, pieces) | None */
static PyObject *change(Program *self, PyObject *const *args, Py_ssize_t count) {
    Splice splice;
    Py_buffer buffer;
    if (count != 9 || !Py_IS_TYPE(args[0], &Program_Type) || !are_strings(args[4]) || !read_splice(args + 5, &splice))
        return wrong_call("change");
    if (PyObject_GetBuffer(args[1], &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *found = NULL, *places;
    splice.data = buffer.buf;
    if (!read_position(args[3], buffer.len, &splice.end) || !read_position(args[2], splice.end - 4, &splice.begin)) {
        wrong_call("change");
    } else if ((places = PyList_New(0)) != NULL) {
        start_texts(&splice.texts);
        found = change_frame(&splice, (Program *)args[0], self, args[4], places, args[1]);
        free_texts(&splice.texts);
        Py_DECREF(places);
        if (found == NULL && !PyErr_Occurred())
            found = Py_NewRef(Py_None);
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
    {"change", (PyCFunction)(void (*)(void))change, METH_FASTCALL,
     PyDoc_STR("change($self, header, data, begin, end, marks, names, prefix, adds, compact, /)\n--\n\nReturn the places "
               "in a frame, and the frame with other names; None if the engine declines.")},
    {NULL, NULL, 0, NULL},
};

int prepare_walks(void) {
    tagged_field = PyUnicode_InternFromString("tagged field");
    return tagged_field == NULL ? -1 : 0;
}
