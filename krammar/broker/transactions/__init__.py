"""The transaction coordinator (KIP-98, KIP-360, KIP-890).

``state``        what is known of a transactional id, and its transitions
``records``      the same as records of `__transaction_state`
``store``        the states in memory and in that topic
``ids``          producer ids
``coordinator``  what requests do, markers, time-outs
"""
