"""Text to ids and back. Text is text: whatever it spells, no control token comes out of it."""

import json
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import tokenizers

from services.errors import BadCheckpoint, InvalidRequest
from services.text import decoding, special
from services.text.controls import Control, Controls, Pieces
from services.text.fewest import Fewest
from services.text.files import REQUIRED, TokenizerFiles


class Tokenizer:
    """Safe to share between threads once made."""

    def __init__(self, files: TokenizerFiles) -> None:
        self._inner = _load(files.files[REQUIRED])
        vocabulary = self._inner.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values(), default=-1) + 1
        self._tokens: list[str | None] = [None] * self.vocab_size
        for token, id in vocabulary.items():
            self._tokens[id] = token

        names = special.named(files)
        self.bos_id = vocabulary.get(names.get("bos_token", ""))
        self.eos_id = vocabulary.get(names.get("eos_token", ""))
        self.stop_ids = special.stop_ids(files, vocabulary)

        declared = {vocabulary[token] for token in {*names.values(), *special.listed(files)} if token in vocabulary}
        added = self._inner.get_added_tokens_decoder()
        self.special_ids = frozenset(declared | {id for id, token in added.items() if token.special})
        # What the template writes is control, special or not (`<think>`); other added tokens are ordinary words.
        written = "\0".join(files.templates.values())
        self.controls = Controls(
            {
                token.content: Control(
                    id=id,
                    special=id in self.special_ids,
                    lstrip=token.lstrip,
                    rstrip=token.rstrip,
                    single_word=token.single_word,
                )
                for id, token in self._with_declared(added, declared).items()
                if token.content.strip()
                and (id in self.special_ids or (token.content in written and not token.content.isalnum()))
            }
        )
        self._decoder = _state(self._inner.decoder)
        self.stages = decoding.stages(self._decoder)
        longest = max((len(self.token_bytes(id)) for id in range(self.vocab_size)), default=1)
        self.fewest = Fewest(self._inner, longest)
        # Stands where a control token stands while the text around is encoded; nobody outside can spell it.
        self._seam = f"\U0010f5ea{secrets.token_hex(16)}\U0010f5ea"
        self._seal(self._inner)
        if spelled := self._spelled():
            self._seal(_load(_without(files.files[REQUIRED], spelled)))

    def encode(self, text: str) -> list[int]:
        """Nothing is added, and a special token's text is encoded like any other. InvalidRequest for half a
        surrogate pair, which JSON can write and UTF-8 cannot."""
        return self.encode_pieces([text])

    def encode_pieces(self, pieces: Pieces) -> list[int]:
        """The text pieces encoded as parts of one whole, the ids between them kept."""
        text = "".join(piece if isinstance(piece, str) else self._seam for piece in pieces)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"the text is not valid Unicode: {error.reason}") from error
        # A batch of one, because that keeps no offsets and lets other threads run meanwhile.
        ids = self._encoder.encode_batch_fast([text], add_special_tokens=False)[0].ids
        controls = (piece for piece in pieces if isinstance(piece, int))
        return [next(controls) if id == self._seam_id else id for id in ids]

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """All at once; ids that are no token add nothing."""
        return self._inner.decode(
            [id for id in ids if self.token(id, skip_special=skip_special) is not None], skip_special_tokens=False
        )

    def token(self, id: int, *, skip_special: bool = False) -> str | None:
        """The token as the vocabulary spells it; None for no token, or one to be skipped."""
        if not 0 <= id < self.vocab_size or (skip_special and id in self.special_ids):
            return None
        return self._tokens[id]

    def token_bytes(self, id: int) -> bytes:
        """What the token adds to a text in the middle, which may be part of a character."""
        return decoding.token_bytes(self._decoder, self.token(id) or "")

    def token_text(self, id: int) -> str:
        return self.token_bytes(id).decode(errors="replace")

    def _with_declared(
        self, added: dict[int, tokenizers.AddedToken], declared: Iterable[int]
    ) -> dict[int, tokenizers.AddedToken]:
        """Tokens that only the settings call special are plain vocabulary to the library."""
        return {id: tokenizers.AddedToken(self._tokens[id] or "", special=True) for id in declared} | added

    def _seal(self, encoder: tokenizers.Tokenizer) -> None:
        """Encode with this one, once it looks for no control token in text any more and knows the seam."""
        known = [text for text in self.controls.tokens if encoder.token_to_id(text) is not None]
        encoder.add_special_tokens([tokenizers.AddedToken(text, special=True) for text in known])
        encoder.encode_special_tokens = True
        encoder.add_tokens([tokenizers.AddedToken(self._seam, special=False, normalized=False)])
        self._encoder, self._seam_id = encoder, encoder.token_to_id(self._seam)

    def _spelled(self) -> set[str]:
        """Control tokens that the model itself makes of their text; one for the unknown may come of any text."""
        unknown = getattr(self._inner.model, "unk_token", None)
        return {
            text
            for text, token in self.controls.tokens.items()
            if text != unknown and any(token.id in self.encode(before + text) for before in ("", " ", "a"))
        }


def _load(data: bytes) -> tokenizers.Tokenizer:
    try:
        result = tokenizers.Tokenizer.from_buffer(data)
    except Exception as error:  # the library raises nothing narrower
        raise BadCheckpoint(f"{REQUIRED} cannot be loaded: {error}") from error
    result.no_truncation()
    result.no_padding()
    return result


def _state(decoder: tokenizers.decoders.Decoder | None) -> dict[str, Any] | None:
    return None if decoder is None else json.loads(decoder.__getstate__())


def _without(data: bytes, spelled: set[str]) -> bytes:
    """The same tokenizer whose model cannot produce these tokens (a unigram model finds `</s>` in any text): each
    keeps its id under a name that nobody can write."""
    tree = json.loads(data)
    model = tree["model"]
    hidden = {text: f"\U0010f5eb{secrets.token_hex(16)}" for text in spelled}
    if isinstance(model["vocab"], list):
        model["vocab"] = [[hidden.get(text, text), score] for text, score in model["vocab"]]
    else:
        model["vocab"] = {hidden.get(text, text): id for text, id in model["vocab"].items()}
    if "merges" in model:
        pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        model["merges"] = [pair for pair in pairs if not {*pair, "".join(pair)} & spelled]
    tree["added_tokens"] = [token for token in tree["added_tokens"] if token["content"] not in spelled]
    return json.dumps(tree).encode()
