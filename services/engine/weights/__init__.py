"""Checkpoints on disk. Only safetensors are read, and every name, shape and type is checked before anything is."""
