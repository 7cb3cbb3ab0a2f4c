"""Twelve situations that Kafka programs have to cope with, each with three clients.

``python -m tests.faults.gallery`` runs them and writes the table in docs/faults.md; the tests compare
the table with the clients' behaviour.
"""
