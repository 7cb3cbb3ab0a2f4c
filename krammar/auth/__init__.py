"""Authentication code of client and broker: JAAS settings and SCRAM."""
