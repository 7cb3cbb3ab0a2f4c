"""The process that forks Spark's Python workers, with the imports of a task done before: ``spark.python.daemon.module``.

Spark ends a worker whose rows it no longer needs, as after ``limit`` and ``head``. The next task then gets a new
worker, and would wait for these imports: most of the time of a query that needs only a few rows.
"""

from contextlib import suppress
from importlib import import_module

_MODULES = (
    "pandas",
    "pyspark.sql.worker.plan_data_source_read",
    "krammar.spark.datasource",
    "krammar.spark.decoding",
    "krammar.spark.rows",
    "krammar.spark.kafka.read",
    "krammar.spark.kafka.source",
    "krammar.spark.logs.source",
)

if __name__ == "__main__":
    from pyspark.daemon import manager

    for module in _MODULES:
        with suppress(ImportError):  # not all are in every version of PySpark
            import_module(module)
    manager()
