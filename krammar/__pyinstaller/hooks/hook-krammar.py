"""The modules that krammar imports by name, with their tables and pages.

What a frozen program cannot run is left out: Spark's workers and pytest's plugin.
"""

from PyInstaller.utils.hooks import collect_data_files, collect_submodules

_LEFT_OUT = ("krammar.spark", "krammar.lsp", "krammar.pytest_plugin", "krammar.__pyinstaller")

hiddenimports = [
    name
    for package in ("krammar", "kafka_wire", "wafka_wire", "journal_wire")
    for name in collect_submodules(package, filter=lambda name: not name.startswith(_LEFT_OUT))
]
datas = collect_data_files("krammar")
excludedimports = ["pyspark", "pytest", "mypy", "pygls"]
