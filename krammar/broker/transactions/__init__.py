"""The transaction coordinator (KIP-98, KIP-360, KIP-890).

``state``        the state of a transactional id and its transitions
``store``        the states, in memory and as records of `__transaction_state`
``recovery``     which transactions a start must end or fence
``restart``      what a start does with the states and logs of the last run
``completion``   markers and complete states
``coordinator``  requests, producer ids and time-outs
"""
