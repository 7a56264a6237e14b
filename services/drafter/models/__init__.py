"""The drafters that compute: their layers, keys and heads. Plain torch, nothing of the wire.

The target decides every token, so a row here may have other bits in other company: rows of all sequences are packed
through the linears, and only attention is done sequence by sequence.
"""
