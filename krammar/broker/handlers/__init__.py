"""Handlers: what stands between a request and the parts of the broker that know the answer."""
