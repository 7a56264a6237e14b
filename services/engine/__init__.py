"""Everything a process with a model needs: weights, kernels, caches, sampling. No gRPC."""
