/* Records from Python objects to bytes. */
#include "records.h"
#include "writer.h"

/* Lengths are zig-zag varints of 32 bits. */
static const Type name_type = {.kind = K_STRING, .prefix = P_VARINT};
static const Type bytes_type = {.kind = K_BYTES, .prefix = P_VARINT, .nullable = true};

typedef struct {
    Slots slots;
    int64_t base_offset, base_timestamp;
    int64_t last; /* the last offset, as the difference from the base */
    int64_t latest;
    int width; /* of the last record's length */
} Run;

static int write_header(PyObject *header, Writer *writer) {
    if (!PyTuple_CheckExact(header) || PyTuple_GET_SIZE(header) != 2)
        return DECLINED;
    int done = write_string(&name_type, PyTuple_GET_ITEM(header, 0), writer);
    return done == WRITTEN ? write_bytes(&bytes_type, PyTuple_GET_ITEM(header, 1), writer) : done;
}

static int write_headers(PyObject *headers, Writer *writer) {
    if (headers == NULL || (headers != Py_None && !PyList_CheckExact(headers)))
        return DECLINED;
    Py_ssize_t count = headers == Py_None ? 0 : PyList_GET_SIZE(headers);
    if (count > INT32_MAX)
        return DECLINED;
    int done = write_varint(zigzag(count), writer);
    for (Py_ssize_t i = 0; i < count && done == WRITTEN; i++)
        done = write_header(PyList_GET_ITEM(headers, i), writer);
    return done;
}

static int write_key_or_value(PyObject *value, Writer *writer) {
    return value == NULL ? DECLINED : write_bytes(&bytes_type, value, writer);
}

/* Find the difference of a record's offset from the base: it ascends. */
static bool next_offset(Run *run, int64_t offset) {
    if (offset == -1) {
        run->last++;
    } else {
        if (__builtin_sub_overflow(offset, run->base_offset, &offset) || offset <= run->last)
            return false;
        run->last = offset;
    }
    return run->last <= INT32_MAX;
}

static int write_record(PyObject *record, Run *run, Writer *writer) {
    const Slots *slots = &run->slots;
    int64_t offset, timestamp;
    if (!Py_IS_TYPE(record, slots->cls) || !read_int64(SLOT(record, slots->offset), &offset) ||
        !read_int64(SLOT(record, slots->timestamp), &timestamp) || !next_offset(run, offset))
        return DECLINED;
    if (timestamp > run->latest)
        run->latest = timestamp;
    if (__builtin_sub_overflow(timestamp, run->base_timestamp, &timestamp))
        return DECLINED;

    /* The length is known at the end. It probably needs as many bytes as that of the last record. */
    Py_ssize_t place = writer->size, begin = place + run->width;
    uint64_t numbers[] = {zigzag(timestamp), zigzag(run->last)};
    int size = varint_size(numbers[0]);
    TAKE(p, run->width + 1 + size + varint_size(numbers[1]));
    p += run->width;
    *p++ = 0; /* attributes */
    put_varint(p, numbers[0]);
    put_varint(p + size, numbers[1]);
    int done = write_key_or_value(SLOT(record, slots->key), writer);
    if (done == WRITTEN)
        done = write_key_or_value(SLOT(record, slots->value), writer);
    if (done == WRITTEN)
        done = write_headers(SLOT(record, slots->headers), writer);
    if (done < 0)
        return done;

    Py_ssize_t length = writer->size - begin;
    if (length > INT32_MAX)
        return DECLINED;
    int width = varint_size(zigzag(length));
    if (width != run->width) {
        if (width > run->width) {
            TAKE(more, width - run->width);
            (void)more;
        }
        memmove(writer->data + place + width, writer->data + begin, (size_t)length);
        writer->size = place + width + length;
        run->width = width;
    }
    put_varint(writer->data + place, zigzag(length));
    return WRITTEN;
}

PyObject *encode_records(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Run run = {.last = -1, .latest = INT64_MIN, .width = 1};
    if (given != 4 || !PyList_CheckExact(args[1]) || PyList_GET_SIZE(args[1]) == 0 ||
        !read_int64(args[2], &run.base_offset) || !read_int64(args[3], &run.base_timestamp) ||
        !find_slots(args[0], &run.slots))
        return decline();
    uint8_t first[FIRST_SIZE];
    Writer writer = {.data = first, .room = FIRST_SIZE};
    int done = WRITTEN;
    /* Nothing that is called here runs Python code, so the list keeps its records. */
    Py_ssize_t count = PyList_GET_SIZE(args[1]);
    for (Py_ssize_t i = 0; i < count && done == WRITTEN; i++)
        done = write_record(PyList_GET_ITEM(args[1], i), &run, &writer);
    int64_t end;
    if (done < 0 || __builtin_add_overflow(run.base_offset, run.last, &end)) {
        Py_XDECREF(writer.owner);
        return decline();
    }
    PyObject *bytes = finish(&writer);
    if (bytes == NULL)
        return NULL;
    return Py_BuildValue("(NLL)", bytes, (long long)run.last, (long long)run.latest);
}
