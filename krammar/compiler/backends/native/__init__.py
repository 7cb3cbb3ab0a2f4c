"""The native backend: modules that mypyc compiles to extension modules."""
