"""Highlighting of definition files, for the language server and for Pygments. It does not need the compiler."""
