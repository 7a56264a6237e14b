"""Starts the three programs and watches over them. No gRPC here: a channel must never be open when a process starts."""
