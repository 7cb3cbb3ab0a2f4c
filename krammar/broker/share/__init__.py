"""Share groups (KIP-932), apart from the membership of the groups.

- A *share partition* is a partition as a share group reads it: ``partition`` has the states of its records, and
  ``partitions`` those that a node leads.
- ``records`` has the *state* that is stored of a share partition, and its conversion to Kafka's records. ``state`` is
  the share coordinator, which stores these states in `__share_group_state`.
- A *share session* remembers which partitions a member reads: ``sessions``.
- ``settings`` has the settings of a group, ``counts`` and ``reads`` what the metrics show.
"""
