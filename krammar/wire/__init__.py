"""The runtime of generated packages: errors, primitives, layouts, record batches, connections.

Nothing here imports a generated package or the compiler.
"""
