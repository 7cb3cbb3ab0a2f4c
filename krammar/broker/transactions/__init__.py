"""The transaction coordinator (KIP-98, KIP-360, KIP-890).

``state``        the state of a transactional id and its transitions
``records``      conversion of states to and from records of `__transaction_state`
``store``        the states, in memory and in that topic
``ids``          producer ids
``coordinator``  requests, markers and time-outs
"""
