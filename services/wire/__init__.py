"""Everything that crosses a socket. gRPC and the stubs of `tandem.v1`; no torch, nothing else of ours but `errors`."""

import os

# gRPC's core tells every closed connection on stderr; read when it starts, so it is said before anything imports it.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
