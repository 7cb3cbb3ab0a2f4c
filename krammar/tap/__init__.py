"""The protocol-aware proxy: what clients and brokers say to each other, decoded and checked.

``inspector`` reads the frames of a connection and checks that they encode to the same bytes;
``rewrite`` keeps clients on the proxy; ``proxy`` moves the bytes; ``listing``, ``summary`` and
``capture`` are where frames go: shown, counted, kept.
"""
