"""Channel arguments of both ends, in one table, because a value on one side is a promise about the other."""

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""Either way, on every connection; a larger message is RESOURCE_EXHAUSTED on the call that carries it."""

MAX_METADATA_BYTES = 64 * 1024
"""A status with details travels as metadata, the text in it up to three times; gRPC's own limit is 8 KiB."""

PING_EVERY_MS = 30_000
"""How often either side asks an idle connection whether the other still lives."""

PING_TIMEOUT_MS = 10_000
"""A peer that has not answered a ping by then is gone."""

MIN_PING_INTERVAL_MS = 10_000
"""What a server tolerates. gRPC's default of 5 minutes would answer our own clients with `too_many_pings`."""

Options = tuple[tuple[str, int], ...]

_BOTH: Options = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.keepalive_time_ms", PING_EVERY_MS),
    ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
    # A stream may be silent for minutes (a long prefill), and so may a channel between requests.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)

SERVER_OPTIONS: Options = (
    *_BOTH,
    ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
    # Two servers on one port would share its connections at random; a taken port must be an error.
    ("grpc.so_reuseport", 0),
)

CLIENT_OPTIONS: Options = (
    *_BOTH,
    # Peers are named by the operator; a proxy of the environment is for the world outside.
    ("grpc.enable_http_proxy", 0),
    # A restarted peer is found again soon, and one channel's back-off never delays another's.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.use_local_subchannel_pool", 1),
)
