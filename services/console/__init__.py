"""Commands for people at a terminal: they ask a running system, or look at this machine."""
