"""Share groups (KIP-932), apart from the membership of the groups.

``records`` has the state of a share partition, and its conversion to Kafka's records. ``state`` is the
share coordinator, which stores these states in `__share_group_state`.
"""
