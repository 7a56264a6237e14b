"""One file for each family of targets."""
