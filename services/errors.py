"""Every failure that Tandem reports on purpose. Standard library only, so that every package may import it.

TandemError
├── InvalidRequest          a field is wrong; names it and the legal values
│   └── ContextTooLong      prompt + max_tokens do not fit the context
├── UnknownModel            no such model is served
├── Unsupported             a legal request that this server cannot honour (a strict mode that cannot run)
├── TokenizerMismatch       ids were made with other tokenizer files; fetch them again
├── TooLarge                a body or message is over its limit
├── Overloaded              the queue is full; try again after `retry_after_s`
├── Unavailable             loading, draining or gone; try again after `retry_after_s`
├── DeadlineExceeded        the caller's time is up
├── Cancelled               the caller left
├── Internal                a bug; its text never reaches a client
├── BadCheckpoint           a model folder that cannot be served; raised before a port opens
└── BadConfig               a setting that cannot be used; raised before a port opens
"""


class TandemError(Exception):
    """The root; `str(error)` is fit to show to whoever made the request or started the program."""


class InvalidRequest(TandemError):
    """`field` is the path of the offending field as the client wrote it, e.g. `messages[0].content`."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class ContextTooLong(InvalidRequest):
    """Raised before any prefill."""


class UnknownModel(TandemError):
    """The message lists the models that are served."""


class Unsupported(TandemError):
    """`field` names the field that asked for it."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class TokenizerMismatch(TandemError):
    """The caller's tokenizer files are not the ones this target serves."""


class TooLarge(TandemError):
    """The message says the limit in bytes."""


class Overloaded(TandemError):
    """`retry_after_s` is a hint in seconds."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(TandemError):
    """`retry_after_s` is a hint in seconds."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DeadlineExceeded(TandemError):
    """The deadline passed before the answer was complete."""


class Cancelled(TandemError):
    """Nobody waits for the answer any more."""


class Internal(TandemError):
    """What a client sees of an unexpected exception."""


class BadCheckpoint(TandemError):
    """The message names the file and the tensor or key."""


class BadConfig(TandemError):
    """The message names the setting and its legal values."""
