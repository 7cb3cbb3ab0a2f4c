"""Published bugs of Kafka clients, each staged with a rule or a cluster; docs/gallery.md describes them.

A test asserts the behaviour of a correct client. If the bug is still open, it asserts the wrong behaviour, so that
it fails, and the page changes, when the client is mended. tests/interop/gallery has the clients in Java,
JavaScript and Go, and Spark's connector.
"""
