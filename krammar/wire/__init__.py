"""The runtime of generated packages: errors, primitives, layouts, record batches and connections.

It imports neither generated packages nor the compiler.
"""
