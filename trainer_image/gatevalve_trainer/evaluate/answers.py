"""From replies to what evidence keeps of them: scores, lengths, how they ended, their form, and digests of their texts."""

from __future__ import annotations

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.files import SCORE_ONE, Arm, Failure, Item, Likelihood, Style
from gatevalve.contracts.model import Contract, DigestField, Name, ShortText
from gatevalve_trainer.evaluate.engine import Replies, Reply
from gatevalve_trainer.evaluate.schedule import Question
from gatevalve_trainer.evaluate.style import style_of
from gatevalve_trainer.tasks.plugin import Task, checked_score

Scores = tuple[int | None, ...]
"""Millionths, one a decode; None where verifier or judge have none."""

Likelihoods = tuple[Likelihood | None, ...]


class Answer(Contract):
    """One line of the journal: the decodes of one item by one arm, null where a decode is missing.

    Scores are integers in millionths, and all null in Behaviour suites, which have no verifier; only those have styles, and likelihoods
    of the candidate.
    """

    suite: Name
    item: ShortText
    arm: Arm
    scores: tuple[int | None, ...]
    tokens: tuple[int | None, ...]
    finishes: tuple[ShortText | None, ...]
    texts: tuple[DigestField | None, ...]
    failures: tuple[Failure | None, ...]
    styles: tuple[Style | None, ...] | None = None
    likelihoods: Likelihoods | None = None

    @property
    def key(self) -> tuple[str, str, Arm]:
        """Suite, item and arm."""
        return (self.suite, self.item, self.arm)

    @property
    def missing(self) -> int:
        """Decodes without an answer."""
        return sum(text is None for text in self.texts)


def verified(task: Task, item: Item, replies: Replies) -> Scores:
    """The verifier's scores; None for a missing reply, and where the verifier fails."""
    return tuple(None if reply is None else _millionths(checked_score(task, item, reply.text)) for reply in replies)


def scored_answer(question: Question, replies: Replies, scores: Scores) -> Answer:
    """The answer to a question of a suite that is scored; a reply without a score is a missing answer."""
    pairs = list(zip(replies, scores, strict=True))
    failures = tuple(_failure(reply, score) for reply, score in pairs)
    return _answer(question, tuple(reply if score is not None else None for reply, score in pairs), scores, failures)


def behaviour_answer(question: Question, replies: Replies, likelihoods: Likelihoods | None) -> Answer:
    """The answer to a question of a Behaviour suite, which nobody scores; only the candidate has likelihoods."""
    failures: tuple[Failure | None, ...] = tuple("Engine" if reply is None else None for reply in replies)
    answer = _answer(question, replies, (None,) * len(replies), failures)
    styles = tuple(style_of(reply.text, reply.token_ids) if reply else None for reply in replies)
    return answer.model_copy(update={"styles": styles, "likelihoods": likelihoods})


def _answer(question: Question, replies: Replies, scores: Scores, failures: tuple[Failure | None, ...]) -> Answer:
    return Answer(
        suite=question.suite.name,
        item=question.item.id,
        arm=question.arm,
        scores=scores,
        tokens=tuple(reply.tokens if reply else None for reply in replies),
        finishes=tuple(reply.finish if reply else None for reply in replies),
        texts=tuple(_text_digest(reply) for reply in replies),
        failures=failures,
    )


def _millionths(score: float | None) -> int | None:
    return None if score is None else round(score * SCORE_ONE)


def _failure(reply: Reply | None, score: int | None) -> Failure | None:
    if reply is None:
        return "Engine"
    return "Verifier" if score is None else None


def _text_digest(reply: Reply | None) -> str | None:
    return sha256(reply.text.encode("utf-8", "surrogatepass")) if reply else None
