/* What the parts of krammar.wire._engine share.

   A program describes the bytes of one struct at one version: a list of fields, each with the slot of its attribute in
   the class and its type. The engine runs programs in both directions, and reads and writes the slots directly.

   The engine declines whatever is unusual: bytes that do not match, values of other types than those that generated code
   has, values out of range. Pure Python then decides, so that values and errors are the same with and without the
   engine. It runs no Python code itself. */
#ifndef KRAMMAR_ENGINE_H
#define KRAMMAR_ENGINE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

/* The form of programs, and of the arguments of functions. krammar/wire/engine_loading.py expects it. */
#define FORMAT 2
/* Arrays and structs inside of one another. Definitions with more are left to pure Python. */
#define MAX_DEPTH 64
/* Elements without bytes in one message, as krammar/wire/limits.py says. */
#define MAX_ZERO_WIDTH 1024
/* A list gets room for more elements than this only when so many have been read. */
#define FIRST_ELEMENTS 4096

typedef enum {
    K_BOOL, K_INT8, K_INT16, K_INT32, K_INT64, K_UINT8, K_UINT16, K_UINT32, K_UINT64, K_FLOAT32, K_FLOAT64, K_UUID,
    K_VARINT, K_VARLONG, K_UVARINT, K_UVARLONG, K_STRING, K_BYTES, K_ARRAY, K_STRUCT, K_VERSIONED, K_SIZED,
} Kind;

/* Forms of lengths and counts. COMPACT is an unsigned varint of the number plus one, UNSIGNED one of the number. */
typedef enum { P_INT16, P_INT32, P_COMPACT, P_VARINT, P_UNSIGNED } Prefix;

typedef struct Program Program;

typedef struct Type {
    Kind kind;
    Prefix prefix;
    bool nullable;
    uint8_t null;         /* the byte that is null, before a nullable struct */
    Py_ssize_t min_size;  /* bytes of a value at least */
    struct Type *element; /* of an array */
    Program *program;     /* of a struct */
    PyObject *versions;   /* of a struct with a version of its own: its programs, by version */
    Py_ssize_t slot;      /* of counted bytes: where their length is */
    int64_t plus;         /* that length minus their number */
} Type;

typedef enum { D_VALUE, D_LIST, D_STRUCT } DefaultKind;

typedef struct {
    Py_ssize_t slot;
    Type type;
    Py_ssize_t counted; /* for a length field: the slot of the bytes; else 0 */
    int64_t plus;
    DefaultKind default_kind;
    PyObject *value;  /* for D_VALUE */
    Program *program; /* for D_STRUCT: its class and the defaults of its fields */
    uint32_t tag;
    bool ignorable;
    PyObject *entity; /* what its value names, or NULL */
} Field;

struct Program {
    PyObject_HEAD
    PyTypeObject *cls;
    Py_ssize_t unknown_slot; /* of _unknown_tags */
    bool flexible;
    int depth;
    Py_ssize_t min_size;
    /* Fields in order, then tagged ones in the order of their tags, then those that the version lacks. */
    Py_ssize_t count, tags, absent;
    Field *fields;
};

extern PyTypeObject Program_Type, Frames_Type;

/* The methods of programs, which walk over bytes. */
extern PyMethodDef walk_methods[];

/* Returns 0, or -1 with an exception. */
int prepare_walks(void);

/* The class uuid.UUID, the slots of its objects, and the objects of one number and of unknown safety. */
extern PyTypeObject *uuid_type;
extern Py_ssize_t uuid_int, uuid_safe;
extern PyObject *uuid_unknown, *uuid_null;

#define SLOT(object, offset) (*(PyObject **)((char *)(object) + (offset)))

/* CPython 3.11 collects garbage in the middle of allocations; newer ones do not. That would run code of the user on
   objects without all their values, and finds nothing in a message that is being made (a third of the time of a large
   one). */
static inline bool pause_collector(void) {
#if PY_VERSION_HEX < 0x030C0000
    return PyGC_Disable();
#else
    return false;
#endif
}

static inline void resume_collector(bool collects) {
    if (collects)
        PyGC_Enable();
}

/* The objects of small numbers, which CPython has once: making one by a call takes several times as long. */
#define FIRST_SMALL_INT (-5)
#define SMALL_INTS 262
extern PyObject *small_ints[SMALL_INTS];
int make_small_ints(void);

static inline PyObject *make_int(int64_t value) {
    if (value >= FIRST_SMALL_INT && value < FIRST_SMALL_INT + SMALL_INTS)
        return Py_NewRef(small_ints[value - FIRST_SMALL_INT]);
    return PyLong_FromLongLong(value);
}

/* Remember how the objects of a class in Python are freed, and have those of a generated class freed more quickly. */
void remember_dealloc(PyTypeObject *cls);
void free_quickly(PyTypeObject *cls);

/* Add a new reference to a list, which has room for its first elements already. Returns 0, or -1 with an exception. */
static inline int add_element(PyObject *list, Py_ssize_t index, PyObject *value) {
    if (index < PyList_GET_SIZE(list)) {
        PyList_SET_ITEM(list, index, value);
        return 0;
    }
    int failed = PyList_Append(list, value);
    Py_DECREF(value);
    return failed;
}

/* The place of an attribute in the objects of a class, from the descriptor of its slot; 0 with an exception. */
Py_ssize_t slot_of(PyObject *descriptor, PyTypeObject *cls);

/* Read a struct. Returns a new object of `cls`, or NULL: with an exception, or without one if the engine declines. */
PyObject *decode(Program *program, PyTypeObject *cls, PyObject *data, Py_ssize_t *position, bool copy);

/* Write a struct. Returns bytes, or NULL as above. */
PyObject *encode(Program *program, PyObject *value);

/* Write a struct to the end of a bytearray. Returns 0, or -1 as above; the bytearray is unchanged then. */
int encode_into(Program *program, PyObject *value, PyObject *out);

/* A new default of a field, or NULL with an exception. */
PyObject *default_of(const Field *field);

/* Add the functions for record batches to the module. Returns 0, or -1 with an exception. */
int add_records(PyObject *module);

#endif
