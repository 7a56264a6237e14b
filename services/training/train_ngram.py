"""`tandem train ngram`: count, prune, write, and measure on the prompts that were held out."""

from collections.abc import Sequence
from pathlib import Path

from services.drafter.ngram import NgramDrafter
from services.drafter.ngram_table import NgramTable, most_order
from services.errors import BadConfig
from services.training.answer import Answer, read_answers
from services.training.card import write_card
from services.training.data import DataOptions, Target, prepare
from services.training.evaluate import Acceptance, Sample, acceptance, greedy
from services.training.lanes import Captured
from services.training.ngram import count, prune, write

USUAL_ORDER = 5
DRAFT = 7  # tokens of a draft when it is measured


def train_ngram(
    target_folder: Path, out: Path, options: DataOptions, *, order: int | None, most_entries: int, command: str
) -> dict[str, Acceptance]:
    """The acceptance with the table and without. Raises BadConfig for an order that the vocabulary does not allow."""
    target = Target(target_folder)
    most = most_order(target.vocab_size)
    if order is not None and not 2 <= order <= most:
        raise BadConfig(f"order is {order}; legal are 2 to {most} with a vocabulary of {target.vocab_size}")
    order = order or min(USUAL_ORDER, most)
    answers = _answers(target, options)
    kept = [answer for answer in answers if not answer.held_out]
    if not kept:
        raise BadConfig("data: all prompts are held out; more are needed")
    counted = count(kept, order=order, vocab_size=target.vocab_size)
    counted = prune(counted, most_entries=most_entries, vocab_size=target.vocab_size)
    write(out, counted, vocab_size=target.vocab_size, tokenizer_hash=target.tokenizer_hash)
    measured = _measure(NgramTable.read(out), [answer for answer in answers if answer.held_out])
    facts = {
        "what": f"an n-gram table of order {order}, for the drafter `ngram`",
        "target": f"{target.name}, weights `{target.weights_hash}`, tokenizer `{target.tokenizer_hash}`",
        "data": f"{len(kept):,} answers that the target wrote, {sum(len(answer.ids) for answer in kept):,} tokens",
        "held out": f"{len(answers) - len(kept)} answers, by prompt",
        "entries": sum(len(each.context_C) for each in counted),
        "command": f"`{command}`",
    }
    write_card(out, title=f"N-gram table for {target.name}", facts=facts, measured=measured)
    return measured


def _answers(target: Target, options: DataOptions) -> Sequence[Answer]:
    """A file of answers is all that is needed: no state of the target is."""
    if options.answers:
        return list(read_answers(options.answers, vocab_size=target.vocab_size))
    return prepare(target, options, Captured()).answers


def _measure(table: NgramTable, held_out: Sequence[Answer]) -> dict[str, Acceptance]:
    texts = {"temperature 0": [*greedy(held_out)], "above": [answer for answer in held_out if answer.temperature > 0]}
    drafters = {"lookup alone": NgramDrafter(), "lookup, then table": NgramDrafter(table=table)}
    return {
        f"{text}, {name}": acceptance(drafter, map(Sample, answers), count=DRAFT)
        for text, answers in texts.items()
        for name, drafter in drafters.items()
    }
