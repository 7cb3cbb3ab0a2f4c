/* Records as the buffers of Arrow columns: validity (a bit per row, None if all have values), offsets and data.
   https://arrow.apache.org/docs/format/Columnar.html */
#include "records.h"
#include "writer.h"

/* Keys or values. A first pass finds where they are, and how long; a second one copies them to bytes of known size. */
typedef struct {
    Py_ssize_t rows;
    const uint8_t **at; /* NULL for null */
    PyObject *offsets;
    int64_t total, nulls;
} Column;

/* Numbers have the byte order of the machine. */
static inline void store32(PyObject *bytes, Py_ssize_t index, int64_t number) {
    int32_t narrow = (int32_t)number;
    memcpy(PyBytes_AS_STRING(bytes) + index * 4, &narrow, 4);
}
static inline int64_t load32(PyObject *bytes, Py_ssize_t index) {
    int32_t number;
    memcpy(&number, PyBytes_AS_STRING(bytes) + index * 4, 4);
    return number;
}
static inline void store64(PyObject *bytes, Py_ssize_t index, int64_t number) {
    memcpy(PyBytes_AS_STRING(bytes) + index * 8, &number, 8);
}

static inline void set_bit(uint8_t *bits, Py_ssize_t index) { bits[index >> 3] |= (uint8_t)(1 << (index & 7)); }

/* Begin a column of so many rows. Returns false with an exception. */
static bool open_column(Column *column, Py_ssize_t rows) {
    column->rows = rows;
    column->offsets = PyBytes_FromStringAndSize(NULL, (rows + 1) * 4);
    column->at = PyMem_Malloc((size_t)(rows + 1) * sizeof *column->at);
    if (column->at == NULL)
        PyErr_NoMemory();
    if (column->offsets == NULL || column->at == NULL)
        return false;
    store32(column->offsets, 0, 0);
    return true;
}

static void close_column(Column *column) {
    PyMem_Free(column->at);
    Py_XDECREF(column->offsets);
}

static inline void add_chunk(Column *column, Py_ssize_t row, const Chunk *chunk) {
    bool null = chunk->size < 0;
    column->at[row] = null ? NULL : chunk->data;
    column->total += null ? 0 : chunk->size;
    column->nulls += null;
    store32(column->offsets, row + 1, column->total);
}

static PyObject *validity_of(const Column *column) {
    if (column->nulls == 0)
        return Py_NewRef(Py_None);
    Py_ssize_t size = (column->rows + 7) / 8;
    PyObject *bits = PyBytes_FromStringAndSize(NULL, size);
    if (bits == NULL)
        return NULL;
    uint8_t *p = (uint8_t *)PyBytes_AS_STRING(bits);
    memset(p, 0, (size_t)size);
    for (Py_ssize_t row = 0; row < column->rows; row++)
        if (column->at[row] != NULL)
            set_bit(p, row);
    return bits;
}

/* Return validity, offsets, data and the number of nulls; NULL with an exception, or without one if Arrow's offsets are
   too small for the data. */
static PyObject *finish_column(const Column *column) {
    if (column->total > INT32_MAX)
        return NULL;
    PyObject *data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)column->total);
    PyObject *validity = data != NULL ? validity_of(column) : NULL;
    if (validity == NULL) {
        Py_XDECREF(data);
        return NULL;
    }
    char *to = PyBytes_AS_STRING(data);
    int64_t begin = 0;
    for (Py_ssize_t row = 0; row < column->rows; row++) {
        int64_t end = load32(column->offsets, row + 1);
        if (end > begin)
            memcpy(to + begin, column->at[row], (size_t)(end - begin));
        begin = end;
    }
    return Py_BuildValue("(NONL)", validity, column->offsets, data, (long long)column->nulls);
}

/* The headers of all records: a list of structs per row. */
typedef struct {
    PyObject *rows; /* offsets */
    int64_t count, nulls;
    Writer name_offsets, names, validity, value_offsets, values;
} Headers;

static int write_offset(Py_ssize_t offset, Writer *writer) {
    int32_t narrow = (int32_t)offset;
    return offset > INT32_MAX ? DECLINED : write_raw(&narrow, 4, writer);
}

static int write_validity(int64_t index, bool valid, Writer *writer) {
    if (index % 8 == 0) {
        TAKE(p, 1);
        *p = 0;
    }
    if (valid)
        set_bit(writer->data, (Py_ssize_t)index);
    return WRITTEN;
}

static bool open_headers(Headers *headers, Py_ssize_t rows) {
    headers->rows = PyBytes_FromStringAndSize(NULL, (rows + 1) * 4);
    if (headers->rows == NULL || write_offset(0, &headers->name_offsets) < 0 ||
        write_offset(0, &headers->value_offsets) < 0)
        return false;
    store32(headers->rows, 0, 0);
    return true;
}

static void close_headers(Headers *headers) {
    Py_XDECREF(headers->rows);
    Py_XDECREF(headers->name_offsets.owner);
    Py_XDECREF(headers->names.owner);
    Py_XDECREF(headers->validity.owner);
    Py_XDECREF(headers->value_offsets.owner);
    Py_XDECREF(headers->values.owner);
}

/* Whether bytes are UTF-8: 1, 0, or -1 with an exception. */
static int is_utf8(const Chunk *chunk) {
    uint8_t all = 0;
    for (Py_ssize_t i = 0; i < chunk->size; i++)
        all |= chunk->data[i];
    if (all < 128)
        return 1;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)chunk->data, chunk->size, NULL);
    if (text == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    Py_DECREF(text);
    return 1;
}

static int add_header(Headers *headers, const Chunk *name, const Chunk *value) {
    if (is_utf8(name) != 1)
        return DECLINED;
    int done = write_raw(name->data, name->size, &headers->names);
    if (done == WRITTEN)
        done = write_offset(headers->names.size, &headers->name_offsets);
    if (done == WRITTEN)
        done = write_validity(headers->count, value->size >= 0, &headers->validity);
    if (done == WRITTEN && value->size >= 0)
        done = write_raw(value->data, value->size, &headers->values);
    if (done == WRITTEN)
        done = write_offset(headers->values.size, &headers->value_offsets);
    headers->nulls += value->size < 0;
    headers->count++;
    return headers->count > INT32_MAX ? DECLINED : done;
}

/* Return all of it, or None if there are no headers; NULL with an exception. */
static PyObject *finish_headers(Headers *headers) {
    if (headers->count == 0)
        Py_RETURN_NONE;
    PyObject *found = PyTuple_New(8);
    if (found == NULL)
        return NULL;
    Writer *writers[] = {&headers->name_offsets, &headers->names, headers->nulls ? &headers->validity : NULL,
                         &headers->value_offsets, &headers->values};
    PyTuple_SET_ITEM(found, 0, PyLong_FromLongLong(headers->count));
    PyTuple_SET_ITEM(found, 1, Py_NewRef(headers->rows));
    for (int i = 0; i < 5; i++) {
        PyTuple_SET_ITEM(found, i + 2, writers[i] != NULL ? finish(writers[i]) : Py_NewRef(Py_None));
        if (writers[i] != NULL)
            writers[i]->owner = NULL; /* the tuple has it */
    }
    PyTuple_SET_ITEM(found, 7, PyLong_FromLongLong(headers->nulls));
    for (int i = 0; i < 8; i++)
        if (PyTuple_GET_ITEM(found, i) == NULL) {
            Py_DECREF(found);
            return NULL;
        }
    return found;
}

/* Records in a row that have the same bases. */
typedef struct {
    int64_t position, count, base_offset, base_timestamp;
    bool appended; /* all records have the base's timestamp */
} Part;

static bool read_part(PyObject *given, Part *part) {
    if (!PyTuple_CheckExact(given) || PyTuple_GET_SIZE(given) != 5 || !PyBool_Check(PyTuple_GET_ITEM(given, 4)))
        return false;
    part->appended = PyTuple_GET_ITEM(given, 4) == Py_True;
    return read_int64(PyTuple_GET_ITEM(given, 0), &part->position) &&
           read_int64(PyTuple_GET_ITEM(given, 1), &part->count) &&
           read_int64(PyTuple_GET_ITEM(given, 2), &part->base_offset) &&
           read_int64(PyTuple_GET_ITEM(given, 3), &part->base_timestamp);
}

typedef struct {
    Column keys, values;
    Headers headers;
    PyObject *offsets, *timestamps;
    bool with_headers;
    Py_ssize_t row, rows;
} Table;

static bool open_table(Table *table, Py_ssize_t rows) {
    table->offsets = PyBytes_FromStringAndSize(NULL, rows * 8);
    table->timestamps = PyBytes_FromStringAndSize(NULL, rows * 8);
    return table->offsets != NULL && table->timestamps != NULL && open_column(&table->keys, rows) &&
           open_column(&table->values, rows) && open_headers(&table->headers, rows);
}

static void close_table(Table *table) {
    Py_XDECREF(table->offsets);
    Py_XDECREF(table->timestamps);
    close_column(&table->keys);
    close_column(&table->values);
    close_headers(&table->headers);
}

static bool add_headers(Table *table, Reader *reader, int64_t count) {
    Chunk name, value;
    if (!has_headers(reader, count))
        return false;
    while (count--)
        if (!read_header(reader, &name, &value) ||
            (table->with_headers && add_header(&table->headers, &name, &value) < 0))
            return false;
    return true;
}

/* Add the records of a part. Returns false, with an exception or without. */
static bool add_part(Table *table, const Part *part, Reader *reader) {
    Record record;
    for (int64_t i = 0; i < part->count; i++) {
        Py_ssize_t row = table->row++;
        int64_t offset, timestamp = part->base_timestamp;
        if (!read_record(reader, &record) || __builtin_add_overflow(part->base_offset, record.offset, &offset) ||
            (!part->appended && __builtin_add_overflow(timestamp, record.timestamp, &timestamp)))
            return false;
        store64(table->offsets, row, offset);
        store64(table->timestamps, row, timestamp);
        add_chunk(&table->keys, row, &record.key);
        add_chunk(&table->values, row, &record.value);
        if (record.headers && !add_headers(table, reader, record.headers))
            return false;
        store32(table->headers.rows, row + 1, table->headers.count);
        if (reader->next != record.end)
            return false;
    }
    return true;
}

/* Read all parts, and return where they end: a list; NULL with an exception or without. */
static PyObject *add_parts(Table *table, PyObject *data, PyObject *parts) {
    PyObject *ends = PyList_New(0);
    for (Py_ssize_t i = 0; ends != NULL && i < PyList_GET_SIZE(parts); i++) {
        Part part;
        Reader reader;
        PyObject *end = NULL;
        if (read_part(PyList_GET_ITEM(parts, i), &part) && open_reader(data, part.position, &reader) &&
            part.count <= table->rows - table->row && add_part(table, &part, &reader))
            end = PyLong_FromSsize_t(reader.next - reader.data);
        if (end == NULL || add_element(ends, i, end) < 0)
            Py_CLEAR(ends);
    }
    return ends;
}

/* The records of all parts; -1 if there are more than their bytes can have. */
static Py_ssize_t count_rows(PyObject *data, PyObject *parts) {
    Py_ssize_t rows = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(parts); i++) {
        Part part;
        Reader reader;
        if (!read_part(PyList_GET_ITEM(parts, i), &part) || !open_reader(data, part.position, &reader) ||
            part.count < 0 || part.count > left(&reader) / MIN_RECORD_SIZE ||
            __builtin_add_overflow(rows, part.count, &rows) || rows >= PY_SSIZE_T_MAX / 16)
            return -1;
    }
    return rows;
}

PyObject *decode_arrow(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    if (given != 3 || !PyBytes_CheckExact(args[0]) || !PyList_CheckExact(args[1]) || !PyBool_Check(args[2]))
        return decline();
    Py_ssize_t rows = count_rows(args[0], args[1]);
    if (rows < 0)
        return decline();
    Table table = {.with_headers = args[2] == Py_True, .rows = rows};
    PyObject *ends = NULL, *keys = NULL, *values = NULL, *headers = NULL, *found = NULL;
    if (open_table(&table, rows) && (ends = add_parts(&table, args[0], args[1])) != NULL &&
        (keys = finish_column(&table.keys)) != NULL && (values = finish_column(&table.values)) != NULL &&
        (headers = finish_headers(&table.headers)) != NULL)
        found = PyTuple_Pack(6, ends, keys, values, table.offsets, table.timestamps, headers);
    Py_XDECREF(ends);
    Py_XDECREF(keys);
    Py_XDECREF(values);
    Py_XDECREF(headers);
    close_table(&table);
    return found != NULL ? found : decline();
}
