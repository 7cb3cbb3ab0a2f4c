"""The tap: a proxy with a filter that sees the frames between clients and brokers, decodes and checks them.

``proxy`` is a ``krammar.proxy.Proxy`` with a filter, which cuts frames out of the bytes of connections. ``inspector``
decodes the frames of a connection, and checks that they encode to the same bytes. ``capture`` stores frames.
``exchanges`` pairs requests with responses, and ``listing`` writes them as lines, and counts frames for the summary.

``feed`` stores what the page shows, ``details`` builds the tree of a message for it, and ``server`` serves it.
``page_file`` writes a capture as a page, and ``pcap`` as packets for Wireshark.
"""
