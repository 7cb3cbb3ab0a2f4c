"""What client and broker share of logging in: JAAS settings and the keys of SCRAM."""
