"""A protocol-aware proxy, which decodes and checks the frames between clients and brokers.

``inspector`` decodes the frames of a connection, and checks that they encode to the same bytes. ``rewrite`` changes
responses so that clients stay on the proxy. ``proxy`` relays the bytes. ``listing``, ``summary`` and ``capture`` show,
count and store frames.
"""
