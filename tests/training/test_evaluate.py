"""Acceptance is counted as a round would keep drafts."""

from services.drafter.interface import Description, Draft
from services.drafter.ngram import NgramDrafter
from services.training.answer import Answer
from services.training.evaluate import LANES, Sample, acceptance, greedy


class Prophet:
    """Knows every text, and errs at the positions it is told to."""

    description = Description(mode="ngram", name="prophet", max_draft_tokens=15, default_draft_tokens=3)

    def __init__(self, texts, wrong=()):
        self._texts = {text[0]: text for text in texts}
        self._wrong = set(wrong)
        self.open_contexts = 0

    def open(self, opening):
        self.open_contexts += 1
        return [opening.first_id]

    def absorb(self, context, feed):
        assert feed.start == len(context) - 1
        context.extend(feed.ids)

    def draft(self, asks):
        assert len(asks) <= LANES
        return [Draft(self._after(ask.context, ask.max_draft_tokens)) for ask in asks]

    def _after(self, known, count):
        text = self._texts[known[0]]
        assert text[: len(known)] == known
        begin = len(known)
        return tuple(id + (begin + i in self._wrong) for i, id in enumerate(text[begin : begin + count]))

    def close(self, context):
        self.open_contexts -= 1


def sample(prompt, answer):
    return Sample(Answer(prompt, answer, 0.0))


def test_a_perfect_drafter_gains_its_drafts_and_one_token_more():
    text = list(range(21))
    prophet = Prophet([text])
    found = acceptance(prophet, [sample(text[:4], text[4:])], count=3)
    assert (found.rounds, found.tokens) == (4, 16)
    assert found.by_position == [1.0, 1.0, 1.0]
    assert prophet.open_contexts == 0


def test_a_wrong_draft_ends_what_its_round_keeps():
    text = list(range(21))
    found = acceptance(Prophet([text], wrong=[6]), [sample(text[:4], text[4:])], count=3)
    # Round 1 knows position 4, accepts 5 and takes 6 from the target; then 7..10, 11..14, 15..18, 19..20.
    assert (found.rounds, found.tokens) == (5, 16)
    assert found.accepted == [5, 4, 3]
    assert found.drafted == [5, 5, 4]


def test_a_drafter_without_drafts_gains_one_token_a_round():
    found = acceptance(NgramDrafter(), [sample([1], [2, 3, 4, 5])], count=7)
    assert (found.tokens_per_round, found.by_position) == (1.0, [])


def test_more_sequences_than_lanes_are_all_gone_through():
    texts = [[100 * n, *range(100 * n + 1, 100 * n + 3 + n % 5)] for n in range(3 * LANES)]
    prophet = Prophet(texts)
    seen = []
    found = acceptance(prophet, [sample(text[:1], text[1:]) for text in texts], count=2, progress=seen.append)
    assert found.tokens == sum(len(text) - 2 for text in texts) == sum(seen)
    assert prophet.open_contexts == 0


def test_an_answer_of_one_token_has_no_round():
    assert acceptance(NgramDrafter(), [sample([1, 2], [3])], count=2).rounds == 0


def test_greedy_answers_are_those_of_temperature_0():
    answers = [Answer([1], [2], temperature) for temperature in (0.0, 0.7, 0.0)]
    assert list(greedy(answers)) == [answers[0], answers[2]]
