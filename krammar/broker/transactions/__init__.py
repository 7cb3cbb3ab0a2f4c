"""The transaction coordinator (KIP-98, KIP-360, KIP-890).

``state``        the state of a transactional id and its transitions
``store``        the states, in memory and as records of `__transaction_state`
``coordinator``  requests, producer ids, markers and time-outs
"""
