"""Authentication code of client and broker: JAAS settings, SCRAM, tokens, and PEM for TLS."""
