"""``python -m krammar.cli``, the same as ``python -m krammar``."""

from krammar.cli import main

main(prog_name="krammar")
