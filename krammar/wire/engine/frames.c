/* Whole frames without their length: a header, and a message. */
#include "engine.h"

/* The programs of headers and messages, by api key and version as one number of 32 bits, and the classes of results. */
typedef struct {
    PyObject_HEAD
    PyObject *requests, *responses; /* dictionaries of pairs of programs */
    PyTypeObject *request, *response; /* subclasses of tuple with two items */
} Frames;

static int visit(Frames *self, visitproc visit, void *arg) {
    Py_VISIT(self->requests);
    Py_VISIT(self->responses);
    Py_VISIT(self->request);
    Py_VISIT(self->response);
    return 0;
}

static int clear(Frames *self) {
    Py_CLEAR(self->requests);
    Py_CLEAR(self->responses);
    Py_CLEAR(self->request);
    Py_CLEAR(self->response);
    return 0;
}

static void dealloc(Frames *self) {
    PyObject_GC_UnTrack(self);
    clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyTypeObject *request, *response;
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Frames takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O!O!:Frames", &PyType_Type, &request, &PyType_Type, &response))
        return NULL;
    if (!PyType_IsSubtype(request, &PyTuple_Type) || !PyType_IsSubtype(response, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "Frames needs subclasses of tuple");
        return NULL;
    }
    Frames *self = (Frames *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->request = (PyTypeObject *)Py_NewRef(request);
    self->response = (PyTypeObject *)Py_NewRef(response);
    if ((self->requests = PyDict_New()) == NULL || (self->responses = PyDict_New()) == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *key_of(int16_t key, int16_t version) {
    return PyLong_FromLong((long)((uint32_t)(uint16_t)key << 16 | (uint16_t)version));
}

static PyObject *add(Frames *self, PyObject *args) {
    int requests;
    short key, version;
    PyObject *header, *body;
    if (!PyArg_ParseTuple(args, "phhO!O!:add", &requests, &key, &version, &Program_Type, &header, &Program_Type, &body))
        return NULL;
    PyObject *number = key_of(key, version), *pair = number == NULL ? NULL : PyTuple_Pack(2, header, body);
    int added = pair == NULL ? -1 : PyDict_SetItem(requests ? self->requests : self->responses, number, pair);
    Py_XDECREF(number);
    Py_XDECREF(pair);
    if (added < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Read a frame with the programs of a pair. Returns a tuple of header and message, or NULL: with an exception, or without
   one if the engine declines. */
static PyObject *read_pair(PyObject *pair, PyTypeObject *result, PyObject *frame, bool allow_trailing, bool copy) {
    Program *header = (Program *)PyTuple_GET_ITEM(pair, 0), *body = (Program *)PyTuple_GET_ITEM(pair, 1);
    Py_ssize_t position = 0;
    PyObject *first = decode(header, header->cls, frame, &position, true);
    PyObject *second = first == NULL ? NULL : decode(body, body->cls, frame, &position, copy);
    PyObject *made = NULL;
    if (second != NULL && (allow_trailing || position == PyBytes_GET_SIZE(frame)))
        made = result->tp_alloc(result, 2);
    if (made == NULL) {
        Py_XDECREF(first);
        Py_XDECREF(second);
        return NULL;
    }
    PyTuple_SET_ITEM(made, 0, first);
    PyTuple_SET_ITEM(made, 1, second);
    return made;
}

static PyObject *none_unless_failed(void) {
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* request(frame, allow_trailing, views) -> ParsedRequest | None */
static PyObject *request(Frames *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 3 || !PyBytes_CheckExact(args[0]) || PyBytes_GET_SIZE(args[0]) < 4)
        return none_unless_failed();
    const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(args[0]);
    PyObject *number = key_of((int16_t)(p[0] << 8 | p[1]), (int16_t)(p[2] << 8 | p[3]));
    if (number == NULL)
        return NULL;
    PyObject *pair = PyDict_GetItemWithError(self->requests, number), *found = NULL;
    Py_DECREF(number);
    if (pair == NULL)
        return none_unless_failed();
    int viewed = 0;
    if (PyAnySet_CheckExact(args[2]) && PySet_GET_SIZE(args[2])) {
        PyObject *key = PyLong_FromLong((int16_t)(p[0] << 8 | p[1]));
        viewed = key == NULL ? -1 : PySet_Contains(args[2], key);
        Py_XDECREF(key);
    } else if (!PyAnySet_CheckExact(args[2]) && !(PyTuple_CheckExact(args[2]) && PyTuple_GET_SIZE(args[2]) == 0)) {
        Py_RETURN_NONE; /* another container, whose methods could be in Python */
    }
    if (viewed >= 0) {
        Py_INCREF(pair);
        found = read_pair(pair, self->request, args[0], args[1] == Py_True, !viewed);
        Py_DECREF(pair);
    }
    return found != NULL ? found : none_unless_failed();
}

/* response(frame, key, version, copy) -> ParsedResponse | None */
static PyObject *response(Frames *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 4 || !PyBytes_CheckExact(args[0]) || !PyLong_CheckExact(args[1]) || !PyLong_CheckExact(args[2]) ||
        !PyBool_Check(args[3]))
        return none_unless_failed();
    int overflow, too;
    long key = PyLong_AsLongAndOverflow(args[1], &overflow), version = PyLong_AsLongAndOverflow(args[2], &too);
    if (overflow || too || key != (int16_t)key || version != (int16_t)version)
        Py_RETURN_NONE;
    PyObject *number = key_of((int16_t)key, (int16_t)version);
    if (number == NULL)
        return NULL;
    PyObject *pair = PyDict_GetItemWithError(self->responses, number), *found = NULL;
    Py_DECREF(number);
    if (pair != NULL) {
        Py_INCREF(pair);
        found = read_pair(pair, self->response, args[0], false, args[3] == Py_True);
        Py_DECREF(pair);
    }
    return found != NULL ? found : none_unless_failed();
}

static PyMethodDef methods[] = {
    {"add", (PyCFunction)add, METH_VARARGS,
     PyDoc_STR("add($self, of_requests, api_key, version, header, body, /)\n--\n\nAdd the programs of a message-version.")},
    {"request", (PyCFunction)(void (*)(void))request, METH_FASTCALL,
     PyDoc_STR("request($self, frame, allow_trailing, views, /)\n--\n\nParse a request; None if the engine declines.")},
    {"response", (PyCFunction)(void (*)(void))response, METH_FASTCALL,
     PyDoc_STR("response($self, frame, api_key, version, copy, /)\n--\n\nParse a response; None if the engine declines.")},
    {NULL, NULL, 0, NULL},
};

PyTypeObject Frames_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "krammar.wire._engine.Frames",
    .tp_doc = PyDoc_STR("Parses the frames of a package."),
    .tp_basicsize = sizeof(Frames),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = new,
    .tp_dealloc = (destructor)dealloc,
    .tp_traverse = (traverseproc)visit,
    .tp_clear = (inquiry)clear,
    .tp_methods = methods,
};
