"""Quotas: what clients may use of a broker, and for how long they are throttled above it (KIP-13, KIP-219, KIP-546).

- An *entity* is whom a quota limits: a user, a client id, both, or an address; or the default of
  these.
- A *key* is what is limited, such as ``producer_byte_rate``; its value is the *limit*.
- A *meter* measures what one client or one group of clients has used: ``Rate`` and ``TokenBucket``.
- A client above a limit is *throttled*: the response says for how long, and the connection is
  *muted* for this time, so that it handles no further request.

The quotas are records of the metadata log. ``NodeQuotas`` enforces them on a node; other rooms of
the broker only know the functions that it puts into them while there are quotas.
"""
