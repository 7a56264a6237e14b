"""The public face: takes requests in every dialect, asks the target, and gives text back. Never torch.

request     what a client asked for, one shape behind every face; check: its bounds
targets     the connection to the target: what it serves, its tokenizer, whether it is ready
generate    the one path from a request to the deltas of its choices
rest        what all routes over HTTP share; openai, anthropic: one API each
metrics     what is counted on that path
servicer    GenerationService over gRPC
"""
