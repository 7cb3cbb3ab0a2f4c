"""Random protocols over all forms of the language, and an independent codec that says what their bytes are."""
