"""The transaction coordinator (KIP-98, KIP-360, KIP-890).

``state``        the state of a transactional id and its transitions
``store``        the states, in memory and as records of `__transaction_state`
``completion``   markers and complete states
``recovery``     what a start does with the states and logs of the last run
``coordinator``  requests, producer ids and time-outs
"""
