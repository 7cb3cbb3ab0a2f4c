"""The records inside a record batch of format v2 (KIP-82, KIP-98).

A record has a length, an unused attributes byte, a timestamp and an offset (as differences from those of its
batch), a key, a value and headers. All numbers are zig-zag varints.

Reading, checking, and writing in ``encode`` each use one loop without function calls, which only detects that a
record is invalid. ``explain`` reads the same input again, field by field, and returns a precise error.
"""
