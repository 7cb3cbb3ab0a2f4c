/* Reading numbers from bytes. */
#ifndef KRAMMAR_READER_H
#define KRAMMAR_READER_H

#include "engine.h"

typedef struct {
    const uint8_t *next, *end;
    const uint8_t *data;
    PyObject *owner; /* the bytes, or a memoryview of which fields of bytes are slices */
    bool copy;
    uint32_t empty; /* elements without bytes so far */
} Reader;

static inline Py_ssize_t left(const Reader *reader) { return reader->end - reader->next; }

/* Big-endian numbers. Compilers make one load and one swap of each. */
static inline uint16_t get16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static inline uint32_t get32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static inline uint64_t get64(const uint8_t *p) { return (uint64_t)get32(p) << 32 | get32(p + 4); }

/* Read an unsigned varint of so many bits. Returns false if it is too long, or ends after the data. */
static inline bool read_varint(Reader *reader, int bits, uint64_t *value) {
    const uint8_t *p = reader->next;
    if (p < reader->end && *p < 128) {
        *value = *p;
        reader->next = p + 1;
        return true;
    }
    uint64_t found = 0;
    for (int shift = 0; shift < (bits == 32 ? 35 : 70); shift += 7) {
        if (p == reader->end)
            return false;
        uint64_t part = *p & 127;
        if (shift == 63 && part > 1)
            return false;
        found |= part << shift;
        if (*p++ < 128) {
            reader->next = p;
            *value = found;
            return bits == 64 || found <= UINT32_MAX;
        }
    }
    return false;
}

static inline int64_t unzigzag(uint64_t value) { return (int64_t)(value >> 1) ^ -(int64_t)(value & 1); }

/* Read a length or count; -1 is null, whatever its form. Returns false for bytes that have none. */
static inline bool read_length(Reader *reader, Prefix prefix, int64_t *length) {
    uint64_t value;
    switch (prefix) {
    case P_INT16:
        if (left(reader) < 2)
            return false;
        *length = (int16_t)get16(reader->next);
        reader->next += 2;
        return true;
    case P_INT32:
        if (left(reader) < 4)
            return false;
        *length = (int32_t)get32(reader->next);
        reader->next += 4;
        return true;
    case P_COMPACT:
        if (!read_varint(reader, 32, &value))
            return false;
        *length = (int64_t)value - 1;
        return true;
    case P_VARINT:
        if (!read_varint(reader, 32, &value))
            return false;
        *length = unzigzag(value);
        return true;
    case P_UNSIGNED:
        if (!read_varint(reader, 32, &value))
            return false;
        *length = (int64_t)value;
        return true;
    }
    return false;
}

/* The program of a struct that begins with its version, which stays to be read: borrowed, or NULL, with an exception or
   without one. */
static inline Program *program_at(const Type *type, const Reader *reader) {
    if (left(reader) < 2)
        return NULL;
    PyObject *version = PyLong_FromLong((int16_t)get16(reader->next));
    if (version == NULL)
        return NULL;
    PyObject *program = PyDict_GetItemWithError(type->versions, version);
    Py_DECREF(version);
    return program != NULL && Py_IS_TYPE(program, &Program_Type) ? (Program *)program : NULL;
}

/* Read the byte before a nullable struct: 1 if the struct follows, 0 if it is null, -1 for other bytes. */
static inline int read_presence(const Type *type, Reader *reader) {
    if (reader->next == reader->end)
        return -1;
    uint8_t found = *reader->next++;
    return found == 1 ? 1 : found == type->null ? 0 : -1;
}

#endif
