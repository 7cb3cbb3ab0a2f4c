"""The words of the language, each with a sentence about it."""

from __future__ import annotations

TYPES = {
    "bool": "One byte; 0 is false.",
    "int8": "1 byte, signed.",
    "int16": "2 bytes, big-endian, signed.",
    "int32": "4 bytes, big-endian, signed.",
    "int64": "8 bytes, big-endian, signed.",
    "uint8": "1 byte, unsigned.",
    "uint16": "2 bytes, big-endian, unsigned.",
    "uint32": "4 bytes, big-endian, unsigned.",
    "uint64": "8 bytes, big-endian, unsigned.",
    "float32": "4 bytes, IEEE 754, big-endian.",
    "float64": "8 bytes, IEEE 754, big-endian.",
    "varint": "A zig-zag integer of 32 bits, 1 to 5 bytes. Before `[`: an array with such a count.",
    "varlong": "A zig-zag integer of 64 bits, 1 to 10 bytes.",
    "uvarint": "An unsigned base-128 integer of 32 bits, 1 to 5 bytes.",
    "uvarlong": "An unsigned base-128 integer of 64 bits, 1 to 10 bytes.",
    "uuid": "16 bytes.",
    "string": "An int16 length, then UTF-8. In flexible versions an unsigned varint of length + 1.",
    "bytes": "An int32 length, then the bytes. In flexible versions an unsigned varint of length + 1.",
    "nullable-string": "A string that can be null: length -1, in flexible versions 0. "
    "`nullable-string-v7+` is nullable from version 7.",
    "nullable-bytes": "Bytes that can be null: length -1, in flexible versions 0. "
    "`nullable-bytes-v7+` is nullable from version 7.",
    "varint-string": "A zig-zag varint length, then UTF-8. A negative length is null.",
    "varint-bytes": "A zig-zag varint length, then the bytes. A negative length is null.",
    **{
        f"{null}{form}-{kind}": f"{text} length in all versions, then {content}.{more}"
        for null, more in (("", ""), ("nullable-", " The length -1 is null."))
        for form, text in (
            ("int16", "An int16"),
            ("int32", "An int32"),
            ("uvarint", "An unsigned varint"),
        )
        for kind, content in (("string", "UTF-8"), ("bytes", "the bytes"))
        if not (null and form == "uvarint")
    },
}
OTHER_TYPES = {
    "=>": "An anonymous struct. Its fields follow on deeper lines.",
    "[=>]": "An array of anonymous structs. Their fields follow on deeper lines.",
    "nullable=>": "An anonymous struct after a byte: -1 is null, 1 is present.",
    "nullable-bool=>": "An anonymous struct after a bool: 0 is null, 1 is present.",
    "length-field-minus": "Raw bytes. An earlier field, minus a number, is their length: "
    "`length-field-minus => Length - 49`.",
}
MILLIS = {
    "ThrottleMillis": "An int32 field. The number in parentheses is the version from which the broker "
    "throttles after the response (KIP-219).",
    "TimeoutMillis": "An int32 field. Its default is 15000, or the number in parentheses.",
}
MODIFIERS = {
    "not top level": "A struct, not a request or a response.",
    "with version field": "The struct begins with `Version: int16`, which selects its version.",
    "no encoding": "The struct exists only inside other structs.",
    "key": "The API key of the request.",
    "max version": "The last version.",
    "min version": "The first version; 0 without it.",
    "flexible": "The first flexible version: compact lengths and tagged fields (KIP-482).",
    "newer versions read as the newest": "Versions above the last one are decoded like it; the bytes after its "
    "fields are ignored.",
    "one way": "A request without a response.",
    "push": "A message that the server sends by itself. Its header is a ResponseHeader.",
    "header": "The version of the header: `header 3`, or `header 3 v5+` from version 5 of the message on.",
    "response header": "The version of the response's header, as for `header`.",
    "response key": "The api key in the header of the response, if it is not the request's.",
    "frequent": "Without effect. Former versions made messages with this modifier faster.",
    "admin": "The request is sent to the controller.",
    "group coordinator": "The request is sent to the coordinator of a group.",
    "txn coordinator": "The request is sent to the coordinator of a transactional id.",
    "share coordinator": "The request is sent to the coordinator of a share group.",
    "cluster action": "Only brokers and controllers send the request to each other.",
}
ENTITIES = {
    "topicName": "The name of a topic.",
    "groupId": "The id of a group.",
    "transactionalId": "The id of a transactional producer.",
    "brokerId": "The id of a broker.",
    "producerId": "The id that a broker gave to a producer.",
}
ANNOTATIONS = {
    "tag": "The number of a tagged field. Tags count from 0 without gaps.",
    "reserved tag": "Tags that removed fields had. No other field may get them: old peers would read its value "
    "as that of the removed field.",
    "ignorable": "Encoding a version without the field may drop its value, instead of raising EncodeError.",
    "entity": "What the value names, such as `entity topicName`.",
    "not flexible": "The field keeps its classic encoding in flexible versions.",
    "nullable-bool": "A struct after a bool: 0 is null, 1 is present.",
    "nullable": "The value can be null; `nullable-v9+` from version 9, `nullable-v0-v3` up to version 3.",
    **{
        f"nullable-{form}": f"An array that can be null: {text} count of -1 in all versions."
        for form, text in (
            ("int16", "an int16"),
            ("int32", "an int32"),
            ("varint", "a zig-zag varint"),
        )
    },
    "retriable": "A client can retry after this error.",
    "camelcase": "The members are written in camel case.",
}
WORDS = {**TYPES, **OTHER_TYPES, **MILLIS, **MODIFIERS, **ANNOTATIONS, **ENTITIES}
