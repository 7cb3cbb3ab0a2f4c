/* Programs: how they are built from Python, and checked. */
#include "engine.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

typedef struct {
    const char *name;
    Py_ssize_t width;
} Scalar;

/* In the order of Kind. */
static const Scalar scalars[] = {
    {"bool", 1},   {"int8", 1},    {"int16", 2},   {"int32", 4},   {"int64", 8},   {"uint8", 1},
    {"uint16", 2}, {"uint32", 4},  {"uint64", 8},  {"float32", 4}, {"float64", 8}, {"uuid", 16},
    {"varint", 1}, {"varlong", 1}, {"uvarint", 1}, {"uvarlong", 1},
};
/* In the order of Prefix: the name, and the bytes at least. */
static const Scalar prefixes[] = {
    {"int16", 2}, {"int32", 4}, {"uvarint", 1}, {"varint", 1}, {"unsigned", 1},
};

static int wrong(const char *what) {
    PyErr_Format(PyExc_ValueError, "not a program: %s", what);
    return -1;
}

static int named(const Scalar *table, size_t count, PyObject *name) {
    if (!PyUnicode_Check(name))
        return wrong("a name is not a string");
    for (size_t i = 0; i < count; i++)
        if (PyUnicode_CompareWithASCIIString(name, table[i].name) == 0)
            return (int)i;
    PyErr_Format(PyExc_ValueError, "not a program: %R is unknown", name);
    return -1;
}

static int read_prefix(PyObject *name, Type *type) {
    int found = named(prefixes, Py_ARRAY_LENGTH(prefixes), name);
    if (found < 0)
        return -1;
    type->prefix = (Prefix)found;
    type->min_size = prefixes[found].width;
    return 0;
}

Py_ssize_t slot_of(PyObject *descriptor, PyTypeObject *cls) {
    if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) {
        wrong("an attribute has no slot");
        return 0;
    }
    PyMemberDescrObject *found = (PyMemberDescrObject *)descriptor;
    if (found->d_member->type != T_OBJECT_EX || found->d_member->offset <= 0 ||
        !PyType_IsSubtype(cls, found->d_common.d_type)) {
        wrong("an attribute has no slot of this class");
        return 0;
    }
    return found->d_member->offset;
}

static int read_type(PyObject *given, PyTypeObject *cls, Type *type, int *depth);

static int deeper(int *depth, int inside) {
    if (inside + 1 > *depth)
        *depth = inside + 1;
    return *depth > MAX_DEPTH ? wrong("it is too deep") : 0;
}

/* ("array", element, prefix, nullable) */
static int read_array(PyObject *given, PyTypeObject *cls, Type *type, int *depth) {
    PyObject *element, *prefix;
    int nullable, inside = 0;
    if (!PyArg_ParseTuple(given, "UOOp", &(PyObject *){NULL}, &element, &prefix, &nullable) ||
        read_prefix(prefix, type) < 0)
        return -1;
    type->kind = K_ARRAY;
    type->nullable = nullable;
    type->element = PyMem_Calloc(1, sizeof(Type));
    if (type->element == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (read_type(element, cls, type->element, &inside) < 0)
        return -1;
    if (type->element->kind == K_SIZED)
        return wrong("counted bytes are no elements");
    return deeper(depth, inside);
}

/* Copy a dictionary of programs by versions, in which None is for versions without one. A copy cannot get cycles. */
static int read_versions(PyObject *given, Type *type, int *depth) {
    if (!PyDict_CheckExact(given))
        return wrong("versions are not a dictionary");
    type->versions = PyDict_Copy(given);
    if (type->versions == NULL)
        return -1;
    PyObject *version, *program;
    for (Py_ssize_t position = 0; PyDict_Next(type->versions, &position, &version, &program);) {
        if (!PyLong_CheckExact(version) || (program != Py_None && !Py_IS_TYPE(program, &Program_Type)))
            return wrong("versions are not programs by number");
        if (program != Py_None && ((Program *)program)->depth > *depth)
            *depth = ((Program *)program)->depth;
    }
    return 0;
}

/* ("struct", program, nullable, null) or ("versioned", programs, nullable, null) */
static int read_struct(PyObject *given, Type *type, int *depth, bool versioned) {
    PyObject *inner;
    int nullable;
    unsigned char null;
    if (!PyArg_ParseTuple(given, "UOpb", &(PyObject *){NULL}, &inner, &nullable, &null))
        return -1;
    type->nullable = nullable;
    type->null = null;
    if (versioned) {
        type->kind = K_VERSIONED;
        type->min_size = nullable ? 1 : 2;
        int inside = 0;
        return read_versions(inner, type, &inside) < 0 ? -1 : deeper(depth, inside);
    }
    if (!Py_IS_TYPE(inner, &Program_Type))
        return wrong("a struct has no program");
    type->kind = K_STRUCT;
    type->program = (Program *)Py_NewRef(inner);
    type->min_size = nullable ? 1 : type->program->min_size;
    return deeper(depth, type->program->depth);
}

/* A scalar is its name; the others are tuples that begin with one. */
static int read_type(PyObject *given, PyTypeObject *cls, Type *type, int *depth) {
    if (PyUnicode_Check(given)) {
        int found = named(scalars, Py_ARRAY_LENGTH(scalars), given);
        if (found < 0)
            return -1;
        type->kind = (Kind)found;
        type->min_size = scalars[found].width;
        return 0;
    }
    if (!PyTuple_CheckExact(given) || PyTuple_GET_SIZE(given) < 1 || !PyUnicode_Check(PyTuple_GET_ITEM(given, 0)))
        return wrong("a type is neither a name nor a tuple");
    PyObject *name = PyTuple_GET_ITEM(given, 0);
    bool string = PyUnicode_CompareWithASCIIString(name, "string") == 0;
    if (string || PyUnicode_CompareWithASCIIString(name, "bytes") == 0) {
        PyObject *prefix;
        int nullable;
        if (!PyArg_ParseTuple(given, "UOp", &name, &prefix, &nullable) || read_prefix(prefix, type) < 0)
            return -1;
        type->kind = string ? K_STRING : K_BYTES;
        type->nullable = nullable;
        return 0;
    }
    if (PyUnicode_CompareWithASCIIString(name, "array") == 0)
        return read_array(given, cls, type, depth);
    if (PyUnicode_CompareWithASCIIString(name, "struct") == 0)
        return read_struct(given, type, depth, false);
    if (PyUnicode_CompareWithASCIIString(name, "versioned") == 0)
        return read_struct(given, type, depth, true);
    if (PyUnicode_CompareWithASCIIString(name, "sized") == 0) {
        PyObject *length;
        long long minus;
        if (!PyArg_ParseTuple(given, "UOL", &name, &length, &minus))
            return -1;
        type->kind = K_SIZED;
        type->plus = minus;
        type->slot = slot_of(length, cls);
        return type->slot ? 0 : -1;
    }
    PyErr_Format(PyExc_ValueError, "not a program: %R is unknown", name);
    return -1;
}

/* (descriptor, type, default, tag, ignorable, counted, plus, entity). The default is a value, () for a list, or a
   program. */
static int read_field(PyObject *given, PyTypeObject *cls, Field *field, int *depth) {
    PyObject *descriptor, *type, *value, *counted, *entity;
    int ignorable;
    unsigned int tag;
    long long plus;
    if (!PyTuple_CheckExact(given))
        return wrong("a field is not a tuple");
    if (!PyArg_ParseTuple(given, "OOOIpOLU", &descriptor, &type, &value, &tag, &ignorable, &counted, &plus,
                          &entity))
        return -1;
    if (PyUnicode_GET_LENGTH(entity)) {
        field->entity = Py_NewRef(entity);
        PyUnicode_InternInPlace(&field->entity);
    }
    field->slot = slot_of(descriptor, cls);
    if (field->slot == 0 || read_type(type, cls, &field->type, depth) < 0)
        return -1;
    field->tag = tag;
    field->ignorable = ignorable;
    if (counted != Py_None) {
        field->counted = slot_of(counted, cls);
        field->plus = plus;
        if (field->counted == 0)
            return -1;
        if (field->type.kind < K_INT8 || field->type.kind > K_UINT64)
            return wrong("a length is not an integer");
    }
    if (Py_IS_TYPE(value, &Program_Type)) {
        field->default_kind = D_STRUCT;
        field->program = (Program *)Py_NewRef(value);
        return deeper(depth, field->program->depth);
    }
    if (PyTuple_CheckExact(value)) {
        field->default_kind = D_LIST;
        return PyTuple_GET_SIZE(value) ? wrong("a default is not empty") : 0;
    }
    field->value = Py_NewRef(value);
    return 0;
}

static void clear_type(Type *type) {
    if (type->element != NULL) {
        clear_type(type->element);
        PyMem_Free(type->element);
        type->element = NULL;
    }
    Py_CLEAR(type->program);
    Py_CLEAR(type->versions);
}

static int Program_clear(Program *self) {
    for (Py_ssize_t i = 0; i < self->count + self->tags + self->absent; i++) {
        Field *field = &self->fields[i];
        clear_type(&field->type);
        Py_CLEAR(field->value);
        Py_CLEAR(field->program);
        Py_CLEAR(field->entity);
    }
    Py_CLEAR(self->cls);
    return 0;
}

static void Program_dealloc(Program *self) {
    PyObject_GC_UnTrack(self);
    Program_clear(self);
    PyMem_Free(self->fields);
    Py_TYPE(self)->tp_free(self);
}

static int visit_type(Type *type, visitproc visit, void *arg) {
    for (; type->element != NULL; type = type->element)
        ;
    Py_VISIT(type->program);
    Py_VISIT(type->versions);
    return 0;
}

static int Program_traverse(Program *self, visitproc visit, void *arg) {
    Py_VISIT(self->cls);
    for (Py_ssize_t i = 0; i < self->count + self->tags + self->absent; i++) {
        Field *field = &self->fields[i];
        int stop = visit_type(&field->type, visit, arg);
        if (stop)
            return stop;
        Py_VISIT(field->value);
        Py_VISIT(field->program);
        Py_VISIT(field->entity);
    }
    return 0;
}

static int fill(Program *self, PyObject *fields, PyObject *tags, PyObject *absent) {
    PyObject *groups[] = {fields, tags, absent};
    Py_ssize_t *counts[] = {&self->count, &self->tags, &self->absent};
    Py_ssize_t total = PyTuple_GET_SIZE(fields) + PyTuple_GET_SIZE(tags) + PyTuple_GET_SIZE(absent);
    self->fields = PyMem_Calloc((size_t)total + 1, sizeof(Field));
    if (self->fields == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    Field *next = self->fields;
    for (int group = 0; group < 3; group++) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(groups[group]); i++, next++) {
            ++*counts[group];
            if (read_field(PyTuple_GET_ITEM(groups[group], i), self->cls, next, &self->depth) < 0)
                return -1;
            if (group == 0 && __builtin_add_overflow(self->min_size, next->type.min_size, &self->min_size))
                return wrong("it is too large");
            if (group == 1 && (next->type.kind == K_SIZED || (i && next[-1].tag >= next->tag)))
                return wrong("its tags do not ascend");
        }
    }
    if (self->tags && !self->flexible)
        return wrong("it has tagged fields without being flexible");
    if (self->flexible && __builtin_add_overflow(self->min_size, 1, &self->min_size))
        return wrong("it is too large");
    return 0;
}

static PyObject *Program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyTypeObject *cls;
    PyObject *unknown, *fields, *tags, *absent;
    int format, flexible;
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Program takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "iO!OpO!O!O!:Program", &format, &PyType_Type, &cls, &unknown, &flexible, &PyTuple_Type,
                          &fields, &PyTuple_Type, &tags, &PyTuple_Type, &absent))
        return NULL;
    if (format != FORMAT) {
        PyErr_Format(PyExc_ValueError, "not a program: its format is %d, not %d", format, FORMAT);
        return NULL;
    }
    if (cls->tp_new != PyBaseObject_Type.tp_new || cls->tp_itemsize) {
        wrong("its class makes objects in its own way");
        return NULL;
    }
    Program *self = (Program *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->cls = (PyTypeObject *)Py_NewRef(cls);
    self->flexible = flexible;
    free_quickly(cls);
    self->unknown_slot = slot_of(unknown, cls);
    if (self->unknown_slot == 0 || fill(self, fields, tags, absent) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

PyObject *default_of(const Field *field) {
    if (field->default_kind == D_VALUE)
        return Py_NewRef(field->value);
    if (field->default_kind == D_LIST)
        return PyList_New(0);
    Program *program = field->program;
    PyObject *made = program->cls->tp_alloc(program->cls, 0);
    if (made == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < program->count + program->tags + program->absent; i++) {
        PyObject *value = default_of(&program->fields[i]);
        if (value == NULL) {
            Py_DECREF(made);
            return NULL;
        }
        SLOT(made, program->fields[i].slot) = value;
    }
    SLOT(made, program->unknown_slot) = Py_NewRef(Py_None);
    return made;
}

PyTypeObject Program_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "krammar.wire._engine.Program",
    .tp_doc = PyDoc_STR("The bytes of a struct at one version. krammar.wire.programs builds it."),
    .tp_basicsize = sizeof(Program),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = Program_new,
    .tp_dealloc = (destructor)Program_dealloc,
    .tp_traverse = (traverseproc)Program_traverse,
    .tp_clear = (inquiry)Program_clear,
    .tp_methods = walk_methods,
};
