/* The module krammar.wire._engine: the methods of classes that run programs. */
#include "engine.h"

#include <string.h>
#include <structmember.h>

PyTypeObject *uuid_type;
Py_ssize_t uuid_int, uuid_safe;
PyObject *uuid_unknown, *uuid_null;

static PyObject *name_programs, *name_load, *name_version, *name_copy, *name_data, *name_offset, *name_out;

/* The methods in pure Python, for whatever the engine declines. */
static PyObject *pure_decode, *pure_decode_from, *pure_decode_quietly, *pure_encode, *pure_encode_into;

/* The program of a class at a version: a new reference; NULL, with an exception or without one, if there is none. */
static Program *program_of(PyObject *cls, PyObject *version) {
    if (!PyLong_CheckExact(version))
        return NULL;
    PyObject *programs = Py_XNewRef(_PyType_Lookup((PyTypeObject *)cls, name_programs));
    if (programs == NULL)
        return NULL;
    PyObject *found = NULL;
    if (PyDict_CheckExact(programs)) {
        found = Py_XNewRef(PyDict_GetItemWithError(programs, version));
        if (found == NULL && !PyErr_Occurred())
            found = PyObject_CallMethodOneArg(cls, name_load, version);
    }
    Py_DECREF(programs);
    if (found != NULL && !Py_IS_TYPE(found, &Program_Type))
        Py_CLEAR(found);
    return (Program *)found;
}

/* Sort the arguments of a call: positional ones, then those with names. Missing ones are NULL. */
static bool sort_arguments(PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject *const *known,
                           Py_ssize_t most, PyObject **sorted) {
    if (count > most)
        return false;
    for (Py_ssize_t i = 0; i < most; i++)
        sorted[i] = i < count ? args[i] : NULL;
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        Py_ssize_t place = 0;
        while (place < most && name != known[place]) /* names in code are interned */
            place++;
        if (place == most)
            for (place = 0; place < most && PyUnicode_Compare(name, known[place]) != 0; place++)
                ;
        if (place == most || sorted[place] != NULL)
            return false;
        sorted[place] = args[count + i];
    }
    return true;
}

/* Call a method in pure Python with the arguments of this call. */
static PyObject *call_pure(PyObject *method, PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    Py_ssize_t total = count + (names != NULL ? PyTuple_GET_SIZE(names) : 0);
    PyObject **all = PyMem_Malloc((size_t)(total + 1) * sizeof *all);
    if (all == NULL)
        return PyErr_NoMemory();
    all[0] = self;
    if (total)
        memcpy(all + 1, args, (size_t)total * sizeof *all);
    PyObject *result = PyObject_Vectorcall(method, all, (size_t)count + 1, names);
    PyMem_Free(all);
    return result;
}

/* Whether `copy` is true, false, or something else (-1), which is left to pure Python. */
static inline int read_flag(PyObject *copy) { return copy == NULL || copy == Py_True ? 1 : copy == Py_False ? 0 : -1; }

static PyObject *engine_decode(PyObject *cls, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PyObject *given[3], *const known[] = {name_data, name_version, name_copy};
    int copy;
    if (sort_arguments(args, count, names, known, 3, given) && given[0] != NULL && given[1] != NULL &&
        PyBytes_CheckExact(given[0]) && (copy = read_flag(given[2])) >= 0) {
        Program *program = program_of(cls, given[1]);
        if (program != NULL) {
            Py_ssize_t position = 0;
            PyObject *found = decode(program, program->cls, given[0], &position, copy);
            Py_DECREF(program);
            if (found != NULL) {
                if (position == PyBytes_GET_SIZE(given[0]))
                    return found;
                Py_DECREF(found);
            }
        }
        if (PyErr_Occurred())
            return NULL;
    }
    return call_pure(pure_decode, cls, args, count, names);
}

static PyObject *decode_part(PyObject *pure, PyObject *cls, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PyObject *given[4], *const known[] = {name_data, name_offset, name_version, name_copy};
    int copy;
    if (sort_arguments(args, count, names, known, 4, given) && given[0] != NULL && given[1] != NULL &&
        given[2] != NULL && PyBytes_CheckExact(given[0]) && PyLong_CheckExact(given[1]) &&
        (copy = read_flag(given[3])) >= 0) {
        int overflow;
        long long offset = PyLong_AsLongLongAndOverflow(given[1], &overflow);
        Program *program = NULL;
        if (!overflow && offset >= 0 && offset <= PyBytes_GET_SIZE(given[0]))
            program = program_of(cls, given[2]);
        if (program != NULL) {
            Py_ssize_t position = (Py_ssize_t)offset;
            PyObject *found = decode(program, program->cls, given[0], &position, copy);
            Py_DECREF(program);
            if (found != NULL)
                return Py_BuildValue("(Nn)", found, position);
        }
        if (PyErr_Occurred())
            return NULL;
    }
    return call_pure(pure, cls, args, count, names);
}

static PyObject *engine_decode_from(PyObject *cls, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    return decode_part(pure_decode_from, cls, args, count, names);
}

static PyObject *engine_decode_quietly(PyObject *cls, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    return decode_part(pure_decode_quietly, cls, args, count, names);
}

static PyObject *engine_encode(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PyObject *version, *const known[] = {name_version};
    if (sort_arguments(args, count, names, known, 1, &version) && version != NULL) {
        Program *program = program_of((PyObject *)Py_TYPE(self), version);
        if (program != NULL) {
            PyObject *found = encode(program, self);
            Py_DECREF(program);
            if (found != NULL)
                return found;
        }
        if (PyErr_Occurred())
            return NULL;
    }
    return call_pure(pure_encode, self, args, count, names);
}

static PyObject *engine_encode_into(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PyObject *given[2], *const known[] = {name_out, name_version};
    if (sort_arguments(args, count, names, known, 2, given) && given[0] != NULL && given[1] != NULL &&
        PyByteArray_CheckExact(given[0])) {
        Program *program = program_of((PyObject *)Py_TYPE(self), given[1]);
        if (program != NULL) {
            int done = encode_into(program, self, given[0]);
            Py_DECREF(program);
            if (done == 0)
                Py_RETURN_NONE;
        }
        if (PyErr_Occurred())
            return NULL;
    }
    return call_pure(pure_encode_into, self, args, count, names);
}

/* The methods that replace those in pure Python. Their documentation is that of the methods that they replace. */
static PyMethodDef methods[] = {
    {"decode", (PyCFunction)(void (*)(void))engine_decode, METH_FASTCALL | METH_KEYWORDS | METH_CLASS, NULL},
    {"decode_from", (PyCFunction)(void (*)(void))engine_decode_from, METH_FASTCALL | METH_KEYWORDS | METH_CLASS, NULL},
    {"_decode_quietly", (PyCFunction)(void (*)(void))engine_decode_quietly, METH_FASTCALL | METH_KEYWORDS | METH_CLASS,
     NULL},
    {"encode", (PyCFunction)(void (*)(void))engine_encode, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"encode_into", (PyCFunction)(void (*)(void))engine_encode_into, METH_FASTCALL | METH_KEYWORDS, NULL},
};
static PyObject **const pures[] = {&pure_decode, &pure_decode_from, &pure_decode_quietly, &pure_encode, &pure_encode_into};
static const char *const signatures[] = {
    "decode($type, /, data, version, copy=True)\n--\n\n",
    "decode_from($type, /, data, offset, version, copy=True)\n--\n\n",
    "_decode_quietly($type, /, data, offset, version, copy=True)\n--\n\n",
    "encode($self, /, version)\n--\n\n",
    "encode_into($self, /, out, version)\n--\n\n",
};

/* A copy that stays: the signature, and the documentation of a function. */
static const char *documented(const char *signature, PyObject *function) {
    PyObject *doc = PyObject_GetAttrString(function, "__doc__");
    if (doc == NULL)
        return NULL;
    const char *text = PyUnicode_Check(doc) ? PyUnicode_AsUTF8(doc) : "";
    char *copy = NULL;
    if (text != NULL && (copy = malloc(strlen(signature) + strlen(text) + 1)) == NULL)
        PyErr_NoMemory();
    if (copy != NULL)
        strcat(strcpy(copy, signature), text);
    Py_DECREF(doc);
    return copy;
}

static PyObject *install(PyObject *module, PyObject *cls) {
    (void)module;
    if (!PyType_Check(cls)) {
        PyErr_SetString(PyExc_TypeError, "install needs a class");
        return NULL;
    }
    PyObject *replaced = PyDict_New();
    if (replaced == NULL)
        return NULL;
    remember_dealloc((PyTypeObject *)cls);
    for (size_t i = 0; i < Py_ARRAY_LENGTH(methods); i++) {
        bool of_class = methods[i].ml_flags & METH_CLASS;
        PyObject *found = PyObject_GetAttrString(cls, methods[i].ml_name);
        PyObject *pure = found != NULL && of_class ? PyObject_GetAttrString(found, "__func__") : Py_XNewRef(found);
        Py_XDECREF(found);
        if (pure == NULL || (methods[i].ml_doc = documented(signatures[i], pure)) == NULL) {
            Py_XDECREF(pure);
            Py_DECREF(replaced);
            return NULL;
        }
        *pures[i] = pure;
        PyObject *descriptor = of_class ? PyDescr_NewClassMethod((PyTypeObject *)cls, &methods[i])
                                        : PyDescr_NewMethod((PyTypeObject *)cls, &methods[i]);
        int set = descriptor == NULL ? -1 : PyObject_SetAttrString(cls, methods[i].ml_name, descriptor);
        Py_XDECREF(descriptor);
        if (set < 0 || PyDict_SetItemString(replaced, methods[i].ml_name, pure) < 0) {
            Py_DECREF(replaced);
            return NULL;
        }
    }
    return replaced;
}

static PyMethodDef functions[] = {
    {"install", install, METH_O,
     PyDoc_STR("install($module, cls, /)\n--\n\nReplace the codec methods of a class by those that run programs. "
               "Returns the functions that they replace, by name.")},
    {NULL, NULL, 0, NULL},
};

static Py_ssize_t slot_named(PyTypeObject *type, const char *name) {
    PyObject *found = PyObject_GetAttrString((PyObject *)type, name);
    Py_ssize_t offset = 0;
    if (found != NULL && Py_IS_TYPE(found, &PyMemberDescr_Type))
        offset = ((PyMemberDescrObject *)found)->d_member->offset;
    else if (found != NULL)
        PyErr_Format(PyExc_ImportError, "uuid.UUID.%s has no slot", name);
    Py_XDECREF(found);
    return offset;
}

static int find_uuid(void) {
    PyObject *module = PyImport_ImportModule("uuid");
    if (module == NULL)
        return -1;
    uuid_type = (PyTypeObject *)PyObject_GetAttrString(module, "UUID");
    PyObject *safety = PyObject_GetAttrString(module, "SafeUUID");
    Py_DECREF(module);
    if (safety != NULL)
        uuid_unknown = PyObject_GetAttrString(safety, "unknown");
    Py_XDECREF(safety);
    if (uuid_type == NULL || uuid_unknown == NULL || !PyType_Check(uuid_type))
        return -1;
    uuid_int = slot_named(uuid_type, "int");
    uuid_safe = uuid_int ? slot_named(uuid_type, "is_safe") : 0;
    if (uuid_safe == 0)
        return -1;
    PyObject *primitives = PyImport_ImportModule("krammar.wire.primitives");
    if (primitives != NULL)
        uuid_null = PyObject_GetAttrString(primitives, "NULL_UUID");
    Py_XDECREF(primitives);
    return uuid_null == NULL ? -1 : 0;
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "krammar.wire._engine",
    .m_doc = PyDoc_STR("Runs the programs of messages, and the loops over the records of batches."),
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__engine(void) {
    if (PyType_Ready(&Program_Type) < 0 || PyType_Ready(&Frames_Type) < 0 || find_uuid() < 0 ||
        make_small_ints() < 0 || prepare_walks() < 0)
        return NULL;
    struct {
        PyObject **name;
        const char *text;
    } names[] = {
        {&name_programs, "_programs"}, {&name_load, "_load_program"}, {&name_version, "version"},
        {&name_copy, "copy"},          {&name_data, "data"},          {&name_offset, "offset"},
        {&name_out, "out"},
    };
    for (size_t i = 0; i < Py_ARRAY_LENGTH(names); i++)
        if ((*names[i].name = PyUnicode_InternFromString(names[i].text)) == NULL)
            return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    if (PyModule_AddObjectRef(module, "Program", (PyObject *)&Program_Type) < 0 ||
        PyModule_AddObjectRef(module, "Frames", (PyObject *)&Frames_Type) < 0 ||
        PyModule_AddIntConstant(module, "FORMAT", FORMAT) < 0 || add_records(module) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
