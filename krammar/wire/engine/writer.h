/* Writing bytes that grow. */
#ifndef KRAMMAR_WRITER_H
#define KRAMMAR_WRITER_H

#include "engine.h"

#include <string.h>

#define FIRST_SIZE 1024

typedef struct {
    uint8_t *data;
    Py_ssize_t size, room;
    PyObject *owner; /* bytes with the data; NULL while it is in the first bytes, on the stack */
    uint32_t empty;  /* elements without bytes so far */
} Writer;

/* What functions return. After FAILED there is an exception, after DECLINED none. */
enum { WRITTEN = 0, FAILED = -1, DECLINED = -2 };

/* Make room for so many more bytes, or more than that. */
int grow(Writer *writer, Py_ssize_t more);

/* Make room for so many bytes, and let `p` be where they go. */
#define TAKE(p, width)                                                                                                 \
    uint8_t *p;                                                                                                        \
    do {                                                                                                               \
        if (writer->room - writer->size < (Py_ssize_t)(width) && grow(writer, (Py_ssize_t)(width)) < 0)                 \
            return FAILED;                                                                                             \
        p = writer->data + writer->size;                                                                               \
        writer->size += (Py_ssize_t)(width);                                                                           \
    } while (0)

static inline void put16(uint8_t *p, uint16_t value) {
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
}
static inline void put32(uint8_t *p, uint32_t value) {
    put16(p, (uint16_t)(value >> 16));
    put16(p + 2, (uint16_t)value);
}
static inline void put64(uint8_t *p, uint64_t value) {
    put32(p, (uint32_t)(value >> 32));
    put32(p + 4, (uint32_t)value);
}

static inline int varint_size(uint64_t value) {
    int size = 1;
    while (value > 127) {
        value >>= 7;
        size++;
    }
    return size;
}

static inline void put_varint(uint8_t *p, uint64_t value) {
    while (value > 127) {
        *p++ = (uint8_t)(value | 128);
        value >>= 7;
    }
    *p = (uint8_t)value;
}

static inline int write_varint(uint64_t value, Writer *writer) {
    TAKE(p, varint_size(value));
    put_varint(p, value);
    return WRITTEN;
}

static inline uint64_t zigzag(int64_t value) { return (uint64_t)value << 1 ^ (uint64_t)(value >> 63); }

static inline int write_raw(const void *data, Py_ssize_t size, Writer *writer) {
    if (size == 0)
        return WRITTEN;
    TAKE(p, size);
    memcpy(p, data, (size_t)size);
    return WRITTEN;
}

/* Write a string, or bytes, after their length. */
int write_string(const Type *type, PyObject *value, Writer *writer);
int write_bytes(const Type *type, PyObject *value, Writer *writer);

/* Return the bytes of a writer, which is of no use afterwards; NULL with an exception. */
PyObject *finish(Writer *writer);

#endif
