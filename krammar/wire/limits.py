"""Limits of generated code. Packages import this module, which imports nothing, so that they load quickly."""

# A few bytes of input can claim any number of elements that have no bytes on the wire.
# One message contains at most this many of them.
MAX_ZERO_WIDTH = 1024
