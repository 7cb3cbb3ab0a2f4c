"""Reads the files of Kafka's log folders, for the broker, Spark and ``krammar inspect``.

``names``           names of files and folders
``segment``         a segment: reads its batches, and finds offsets, times and transactions with its indexes
``index``           ``.index``, ``.timeindex`` and ``.txnindex``, which the broker also writes
``snapshot``        ``.snapshot``, the state of producers
``checkpoints``     the text files: offsets by partition, leader epochs, a topic's id
``partition``       a partition's folder: its segments, its first and last offset
``transactions``    the aborted and the open transactions of a partition
``metadata_frame``  the frame of a record of ``__cluster_metadata``
``damage``          the kinds of damage, and how each reader handles them
"""
