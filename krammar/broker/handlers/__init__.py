"""Handlers: convert requests to calls of the broker's parts, and their results to responses."""
