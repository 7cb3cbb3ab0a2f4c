"""The logs of partitions, in folders in Kafka's format.

A *log* (``log``) appends batches. It has a *state* (``state``: segments, offsets, producers), and
three parts that use it: a *reader* (``reading``), its *durability* (``durability``: what is on the
disk), and its *retention* (``retention``: which segments it has). ``loading`` opens a folder and
repairs it; ``validation`` checks a batch, and ``producers`` its place in the sequence of its
producer. A *segment* (``segment``) is a file of batches with its indexes.

The *manager* (``manager``) has the logs of all partitions, in *folders* (``folder``) with locks and
checkpoints, the *flusher* (``flusher``), which forces all of them to the disk, and the *cleaner*
(``compaction``).
"""
