"""Where keys and values live. Storage knows rows, not requests."""
