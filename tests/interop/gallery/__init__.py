"""Published bugs of clients in Java, JavaScript and Go, staged as in tests/gallery; docs/gallery.md describes them."""
