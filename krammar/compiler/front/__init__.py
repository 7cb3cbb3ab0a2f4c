"""Parses definition files into the intermediate representation, and reports diagnostics."""
