/* The records of batches of format v2 (KIP-98), and their headers (KIP-82). One walk over their bytes serves all who
   read them; krammar/wire/batches/records has the same in Python, which runs where these decline. */
#ifndef KRAMMAR_RECORDS_H
#define KRAMMAR_RECORDS_H

#include "reader.h"

/* A length, attributes, and five numbers of at least one byte. */
#define MIN_RECORD_SIZE 7
/* The lengths of a name and a value. */
#define MIN_HEADER_SIZE 2

typedef struct {
    const uint8_t *data;
    Py_ssize_t size; /* -1 for null */
} Chunk;

typedef struct {
    int64_t timestamp, offset; /* as differences from those of the batch */
    Chunk key, value;
    int64_t headers; /* how many headers follow, not yet compared with the bytes that are left */
    const uint8_t *end;
} Record;

static inline bool read_number(Reader *reader, int bits, int64_t *number) {
    uint64_t value;
    if (!read_varint(reader, bits, &value))
        return false;
    *number = unzigzag(value);
    return true;
}

static inline bool read_chunk(Reader *reader, Chunk *chunk) {
    int64_t size;
    if (!read_number(reader, 32, &size) || size < -1 || size > left(reader))
        return false;
    chunk->data = reader->next;
    chunk->size = (Py_ssize_t)size;
    if (size > 0)
        reader->next += size;
    return true;
}

/* Read a record up to its headers. The caller reads those, and then compares the position with the record's end. */
static inline bool read_record(Reader *reader, Record *record) {
    int64_t size;
    if (!read_number(reader, 32, &size) || size < 1 || size > left(reader))
        return false;
    record->end = reader->next + size;
    reader->next++; /* the attributes, of which no bit is in use */
    return read_number(reader, 64, &record->timestamp) && read_number(reader, 32, &record->offset) &&
           read_chunk(reader, &record->key) && read_chunk(reader, &record->value) &&
           read_number(reader, 32, &record->headers);
}

/* Whether a number of headers can be in the bytes that are left. */
static inline bool has_headers(const Reader *reader, int64_t count) {
    return count >= 0 && count <= left(reader) / MIN_HEADER_SIZE;
}

static inline bool read_header(Reader *reader, Chunk *name, Chunk *value) {
    return read_chunk(reader, name) && name->size >= 0 && read_chunk(reader, value);
}

/* Where the slots of the class of records are. */
typedef struct {
    PyTypeObject *cls;
    Py_ssize_t offset, timestamp, key, value, headers;
} Slots;

/* Find the slots of a class. Returns false, with an exception or without, if its objects are no records. */
bool find_slots(PyObject *cls, Slots *slots);

/* Decline: raise Malformed unless there is an exception already. Returns NULL. */
PyObject *decline(void);

/* The value of an argument or attribute that is an int of 64 bits. */
static inline bool read_int64(PyObject *given, int64_t *number) {
    if (given == NULL || !PyLong_CheckExact(given))
        return false;
    int overflow;
    *number = PyLong_AsLongLongAndOverflow(given, &overflow);
    return !overflow;
}

/* Begin to read bytes at a position. Returns false if there is none such. */
static inline bool open_reader(PyObject *data, int64_t position, Reader *reader) {
    if (!PyBytes_CheckExact(data) || position < 0 || position > PyBytes_GET_SIZE(data))
        return false;
    reader->data = (const uint8_t *)PyBytes_AS_STRING(data);
    reader->next = reader->data + position;
    reader->end = reader->data + PyBytes_GET_SIZE(data);
    return true;
}

/* Functions of the module. krammar/wire/_engine.pyi describes them. */
PyObject *decode_records(PyObject *module, PyObject *const *args, Py_ssize_t given);
PyObject *decode_arrow(PyObject *module, PyObject *const *args, Py_ssize_t given);
PyObject *count_headers(PyObject *module, PyObject *const *args, Py_ssize_t given);
PyObject *check_records(PyObject *module, PyObject *const *args, Py_ssize_t given);
PyObject *encode_records(PyObject *module, PyObject *const *args, Py_ssize_t given);

#endif
