/* What the functions for records share: the class of records, and how they decline. */
#include "records.h"

static PyObject *malformed;

PyObject *decline(void) {
    if (!PyErr_Occurred())
        PyErr_SetNone(malformed);
    return NULL;
}

bool find_slots(PyObject *cls, Slots *slots) {
    static Slots known; /* those of the last class: there is usually one */
    if (cls == (PyObject *)known.cls) {
        *slots = known;
        return true;
    }
    if (!PyType_Check(cls))
        return false;
    slots->cls = (PyTypeObject *)cls;
    struct {
        const char *name;
        Py_ssize_t *place;
    } places[] = {
        {"offset", &slots->offset}, {"timestamp", &slots->timestamp}, {"key", &slots->key},
        {"value", &slots->value},   {"_headers", &slots->headers},
    };
    for (size_t i = 0; i < Py_ARRAY_LENGTH(places); i++) {
        PyObject *descriptor = PyObject_GetAttrString(cls, places[i].name);
        if (descriptor == NULL)
            return false;
        *places[i].place = slot_of(descriptor, slots->cls);
        Py_DECREF(descriptor);
        if (*places[i].place == 0)
            return false;
    }
    Py_INCREF(cls);
    Py_XSETREF(known.cls, slots->cls);
    known = *slots;
    return true;
}

#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef functions[] = {
    FUNCTION(decode_records), FUNCTION(decode_arrow),   FUNCTION(count_headers),
    FUNCTION(check_records),  FUNCTION(encode_records), {NULL, NULL, 0, NULL},
};

int add_records(PyObject *module) {
    PyObject *primitives = PyImport_ImportModule("krammar.wire.primitives");
    if (primitives == NULL)
        return -1;
    malformed = PyObject_GetAttrString(primitives, "Malformed");
    Py_DECREF(primitives);
    return malformed == NULL ? -1 : PyModule_AddFunctions(module, functions);
}
