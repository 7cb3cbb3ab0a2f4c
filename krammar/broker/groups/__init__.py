"""Groups of consumers: their members, assignments and committed offsets.

The *coordinator* (``coordinator``) has the groups of a node, in *shards* (``shard``, ``shards``):
one for each partition of `__consumer_offsets` that the node leads. A group (``group``) follows one
of two
protocols: ``classic_group`` and ``consumer_group`` are the states, ``classic_protocol`` and
``consumer_protocol`` change them, and ``migration`` turns one into the other. The protocols do no
I/O: a *host* (``host``) provides time and storage. ``assignors`` compute assignments, ``matching``
finds the topics of patterns, ``embedded`` reads what classic consumers send as bytes, ``records``
stores groups, and ``offsets`` and ``offset_manager`` have the committed offsets.
"""
