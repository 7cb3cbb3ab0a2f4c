"""``python -m krammar``."""

from krammar.cli import main

main(prog_name="krammar")
