/* Records as Python objects. */
#include "records.h"

#include <string.h>

#define GUESSES 8

/* The names of headers, so that equal ones are one object. A name is compared with the last one at its place first:
   records often have the same headers in the same order. */
typedef struct {
    PyObject *all; /* by their bytes */
    struct {
        PyObject *bytes;
        PyObject *name; /* borrowed from `all` */
    } guesses[GUESSES];
} Names;

static void clear_names(Names *names) {
    Py_XDECREF(names->all);
    for (int i = 0; i < GUESSES; i++)
        Py_XDECREF(names->guesses[i].bytes);
}

/* Decode a name that is new to `all`. Returns a borrowed reference, or NULL as name_of. */
static PyObject *new_name(Names *names, PyObject *bytes) {
    PyObject *name = PyUnicode_DecodeUTF8(PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes), NULL);
    if (name == NULL) {
        if (PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
            PyErr_Clear();
        return NULL;
    }
    int added = PyDict_SetItem(names->all, bytes, name);
    Py_DECREF(name);
    return added < 0 ? NULL : name;
}

/* Return a borrowed reference, or NULL, with an exception unless the name is not UTF-8. */
static PyObject *name_of(Names *names, int64_t index, const Chunk *chunk) {
    PyObject *bytes = names->guesses[index % GUESSES].bytes;
    if (bytes != NULL && PyBytes_GET_SIZE(bytes) == chunk->size &&
        memcmp(PyBytes_AS_STRING(bytes), chunk->data, (size_t)chunk->size) == 0)
        return names->guesses[index % GUESSES].name;
    if (names->all == NULL && (names->all = PyDict_New()) == NULL)
        return NULL;
    bytes = PyBytes_FromStringAndSize((const char *)chunk->data, chunk->size);
    if (bytes == NULL)
        return NULL;
    PyObject *name = PyDict_GetItemWithError(names->all, bytes);
    if (name == NULL && !PyErr_Occurred())
        name = new_name(names, bytes);
    if (name == NULL) {
        Py_DECREF(bytes);
        return NULL;
    }
    Py_XSETREF(names->guesses[index % GUESSES].bytes, bytes);
    names->guesses[index % GUESSES].name = name;
    return name;
}

static inline PyObject *bytes_of(const Chunk *chunk) {
    return chunk->size < 0 ? Py_NewRef(Py_None)
                           : PyBytes_FromStringAndSize((const char *)chunk->data, chunk->size);
}

/* A list that gets `count` elements. The garbage collector does not know it: while it is filled, no code may see its
   empty places. */
static PyObject *untracked_list(int64_t count) {
    PyObject *list = PyList_New(count < FIRST_ELEMENTS ? (Py_ssize_t)count : FIRST_ELEMENTS);
    if (list != NULL)
        PyObject_GC_UnTrack(list);
    return list;
}

/* Read one header: a tuple, which can be in no reference cycle. */
static PyObject *make_header(Reader *reader, Names *names, int64_t index) {
    Chunk name_chunk, value_chunk;
    PyObject *name, *value;
    if (!read_header(reader, &name_chunk, &value_chunk) || (name = name_of(names, index, &name_chunk)) == NULL ||
        (value = bytes_of(&value_chunk)) == NULL)
        return NULL;
    PyObject *pair = PyTuple_New(2);
    if (pair == NULL) {
        Py_DECREF(value);
        return NULL;
    }
    PyTuple_SET_ITEM(pair, 0, Py_NewRef(name));
    PyTuple_SET_ITEM(pair, 1, value);
    PyObject_GC_UnTrack(pair);
    return pair;
}

static PyObject *make_headers(Reader *reader, Names *names, int64_t count) {
    if (count == 0)
        return Py_NewRef(Py_None);
    if (!has_headers(reader, count))
        return NULL;
    PyObject *list = untracked_list(count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        PyObject *pair = make_header(reader, names, i);
        if (pair == NULL || add_element(list, i, pair) < 0)
            Py_CLEAR(list);
    }
    return list;
}

typedef struct {
    Slots slots;
    int64_t base_offset, base_timestamp;
    bool own_timestamps;
    /* The timestamp of the last record: many records in a row have the same. */
    int64_t timestamp;
    PyObject *stamp;
    Names names;
} Run;

/* Set the slot of a new object. Returns whether there is a value. */
static inline bool set_slot(PyObject *object, Py_ssize_t slot, PyObject *value) {
    SLOT(object, slot) = value;
    return value != NULL;
}

/* Read one record. Without reference cycles through it, which only a change of its headers can make, the garbage
   collector has nothing to do with it: this takes half the time. */
static PyObject *make_record(Reader *reader, Run *run) {
    const Slots *slots = &run->slots;
    Record record;
    int64_t offset, timestamp;
    if (!read_record(reader, &record) || __builtin_add_overflow(run->base_offset, record.offset, &offset))
        return NULL;
    if (record.timestamp != run->timestamp && run->own_timestamps) {
        if (__builtin_add_overflow(run->base_timestamp, record.timestamp, &timestamp))
            return NULL;
        PyObject *stamp = PyLong_FromLongLong(timestamp);
        if (stamp == NULL)
            return NULL;
        Py_SETREF(run->stamp, stamp);
        run->timestamp = record.timestamp;
    }
    PyObject *made = slots->cls->tp_alloc(slots->cls, 0);
    if (made == NULL)
        return NULL;
    PyObject_GC_UnTrack(made);
    SLOT(made, slots->timestamp) = Py_NewRef(run->stamp);
    if (set_slot(made, slots->offset, PyLong_FromLongLong(offset)) &&
        set_slot(made, slots->key, bytes_of(&record.key)) && set_slot(made, slots->value, bytes_of(&record.value)) &&
        set_slot(made, slots->headers, make_headers(reader, &run->names, record.headers)) &&
        reader->next == record.end)
        return made;
    Py_DECREF(made);
    return NULL;
}

PyObject *decode_records(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    int64_t position, count;
    Run run = {0};
    Reader reader;
    if (given != 7 || !read_int64(args[2], &position) || !read_int64(args[3], &count) ||
        !read_int64(args[4], &run.base_offset) || !read_int64(args[5], &run.base_timestamp) ||
        !PyBool_Check(args[6]) || !open_reader(args[1], position, &reader) || count < 0 ||
        count > left(&reader) / MIN_RECORD_SIZE || !find_slots(args[0], &run.slots))
        return decline();
    run.own_timestamps = args[6] == Py_True;
    run.stamp = Py_NewRef(args[5]);
    PyObject *list = untracked_list(count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        PyObject *made = make_record(&reader, &run);
        if (made == NULL || add_element(list, i, made) < 0)
            Py_CLEAR(list);
    }
    Py_DECREF(run.stamp);
    clear_names(&run.names);
    if (list == NULL)
        return decline();
    PyObject_GC_Track(list);
    return Py_BuildValue("(Nn)", list, reader.next - reader.data);
}
