"""Helpers that import no other part of krammar, except its version."""
