/* Objects that decoding makes often: small numbers, and structs. */
#include "engine.h"

PyObject *small_ints[SMALL_INTS];

int make_small_ints(void) {
    for (int i = 0; i < SMALL_INTS; i++) {
        if ((small_ints[i] = PyLong_FromLong(i + FIRST_SMALL_INT)) == NULL)
            return -1;
    }
    return 0;
}

/* How classes in Python free their objects. */
static destructor usual_dealloc;

void remember_dealloc(PyTypeObject *cls) {
    usual_dealloc = cls->tp_dealloc;
}

/* Free a struct, as CPython does for any class with slots, but without looking for what structs do not have: a third of
   the time of decoding and freeing a message of small structs. */
static void free_struct(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self), *cls = type;
    if (type->tp_dealloc == free_struct && type->tp_finalize != NULL && PyObject_CallFinalizerFromDealloc(self) < 0)
        return; /* it lives again */
    while (cls->tp_dealloc != free_struct) /* CPython has freed what a subclass adds */
        cls = cls->tp_base;
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, free_struct)
    PyObject **slot = (PyObject **)(self + 1), **end = (PyObject **)((char *)self + cls->tp_basicsize);
    for (; slot < end; slot++)
        Py_CLEAR(*slot);
    type->tp_free(self);
    Py_DECREF(type);
    Py_TRASHCAN_END
}

void free_quickly(PyTypeObject *cls) {
    if (cls->tp_dealloc != usual_dealloc || usual_dealloc == NULL || cls->tp_dictoffset || cls->tp_weaklistoffset)
        return;
    Py_ssize_t size = sizeof(PyObject);
    for (PyTypeObject *each = cls; each != &PyBaseObject_Type; each = each->tp_base) {
        if (!PyType_HasFeature(each, Py_TPFLAGS_HEAPTYPE))
            return;
        size += Py_SIZE(each) * (Py_ssize_t)sizeof(PyObject *); /* its slots */
    }
    if (size == cls->tp_basicsize)
        cls->tp_dealloc = free_struct;
}
