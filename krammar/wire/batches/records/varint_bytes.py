"""Tables for the first byte of a zig-zag varint, for the loops that read records."""

from __future__ import annotations

# By the first byte of a varint: the number if it is complete and not negative, or -1 (null); -2 if more bytes of
# a positive number follow; -3 for everything else.
FIRST_BYTES = [
    -1 if byte == 1 else -3 if byte & 1 else -2 if byte > 127 else byte >> 1 for byte in range(256)
]
# The low bits of a positive number with several bytes. The loops add the bits of further bytes by
# multiplication, with their highest bits, and subtract a constant once. CPython has fast paths for + and * of
# small integers and for subscripts of lists, but not for shifts and masks (0.80 µs per record instead of 0.85).
LOW_BITS = [(byte & 127) >> 1 for byte in range(256)]
