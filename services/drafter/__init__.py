"""The drafter process: contexts fed by a target over one stream, and drafters that propose from them."""
