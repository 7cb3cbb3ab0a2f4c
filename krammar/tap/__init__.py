"""A protocol-aware proxy, which decodes and checks the frames between clients and brokers.

``inspector`` decodes the frames of a connection, and checks that they encode to the same bytes. ``proxy`` relays the
bytes; ``krammar.proxy.rewrite`` changes responses so that clients stay on the proxy. ``summary`` and ``capture`` count
and store frames. ``exchanges`` pairs requests with responses, and ``listing`` writes them as lines.

``feed`` stores what the page shows, ``details`` builds the tree of a message for it, and ``server`` serves it. ``export``
writes captures as pages and as pcapng.
"""
