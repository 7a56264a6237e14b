"""Everything that crosses a socket. gRPC and the stubs of `tandem.v1`; no torch, nothing else of ours but `errors`."""
