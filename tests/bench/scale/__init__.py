"""Clusters of a size that no test can start, made of answers."""
