/* Records that are counted or checked, without an object for any of them. */
#include "records.h"

PyObject *count_headers(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    int64_t position, count, most, found = 0;
    Reader reader;
    Record record;
    if (given != 4 || !read_int64(args[1], &position) || !read_int64(args[2], &count) ||
        !read_int64(args[3], &most) || !open_reader(args[0], position, &reader))
        return decline();
    for (; count > 0 && found <= most; count--) {
        if (!read_record(&reader, &record))
            return decline();
        if (record.headers > 0)
            found += record.headers;
        reader.next = record.end;
    }
    return PyLong_FromLongLong(found);
}

PyObject *check_records(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    int64_t position, count, headers;
    int64_t lowest = INT64_MAX, highest = INT64_MIN, without_key = -1;
    Reader reader;
    Record record;
    Chunk name, value;
    if (given != 4 || !read_int64(args[1], &position) || !read_int64(args[2], &count) ||
        !read_int64(args[3], &headers) || !open_reader(args[0], position, &reader) || count < 0)
        return decline();
    for (int64_t i = 0; i < count; i++) {
        if (!read_record(&reader, &record) || record.offset != i)
            return decline();
        if (record.timestamp < lowest)
            lowest = record.timestamp;
        if (record.timestamp > highest)
            highest = record.timestamp;
        if (record.key.size < 0)
            without_key = i;
        if (record.headers) {
            if (record.headers < 0 || record.headers > (record.end - reader.next) / MIN_HEADER_SIZE)
                return decline();
            if (record.headers > headers)
                return Py_BuildValue("(iii)", 0, 0, -2);
            headers -= record.headers;
            while (record.headers--)
                if (!read_header(&reader, &name, &value))
                    return decline();
        }
        if (reader.next != record.end)
            return decline();
    }
    if (reader.next != reader.end)
        return decline();
    return Py_BuildValue("(LLL)", (long long)lowest, (long long)highest, (long long)without_key);
}
