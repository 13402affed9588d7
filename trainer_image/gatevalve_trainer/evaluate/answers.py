"""From replies to what evidence keeps of them: scores, lengths, how they ended, and digests of their texts."""

from __future__ import annotations

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.files import SCORE_ONE, Arm, Failure
from gatevalve.contracts.model import Contract, DigestField, Name, ShortText
from gatevalve_trainer.evaluate.engine import Replies, Reply
from gatevalve_trainer.evaluate.schedule import Question
from gatevalve_trainer.tasks.plugin import Task, checked_score


class Answer(Contract):
    """One line of the journal: the decodes of one item by one arm, null where a decode is missing.

    Scores are integers in millionths, and all null in Behaviour suites, which have no verifier.
    """

    suite: Name
    item: ShortText
    arm: Arm
    scores: tuple[int | None, ...]
    tokens: tuple[int | None, ...]
    finishes: tuple[ShortText | None, ...]
    texts: tuple[DigestField | None, ...]
    failures: tuple[Failure | None, ...]

    @property
    def key(self) -> tuple[str, str, Arm]:
        """Suite, item and arm."""
        return (self.suite, self.item, self.arm)

    @property
    def missing(self) -> int:
        """Decodes without an answer."""
        return sum(text is None for text in self.texts)


def answer_of(question: Question, replies: Replies, task: Task | None) -> Answer:
    """Score the replies to one question; a reply whose verifier fails is a missing answer."""
    scored = [_scored(question, reply, task) for reply in replies]
    return Answer(
        suite=question.suite.name,
        item=question.item.id,
        arm=question.arm,
        scores=tuple(score for _, score in scored),
        tokens=tuple(reply.tokens if reply else None for reply, _ in scored),
        finishes=tuple(reply.finish if reply else None for reply, _ in scored),
        texts=tuple(_text_digest(reply) for reply, _ in scored),
        failures=tuple(_failure(before, after) for before, (after, _) in zip(replies, scored, strict=True)),
    )


def _scored(question: Question, reply: Reply | None, task: Task | None) -> tuple[Reply | None, int | None]:
    if reply is None or task is None:
        return reply, None
    score = checked_score(task, question.item, reply.text)
    return (None, None) if score is None else (reply, round(score * SCORE_ONE))


def _failure(before: Reply | None, after: Reply | None) -> Failure | None:
    if before is None:
        return "Engine"
    return "Verifier" if after is None else None


def _text_digest(reply: Reply | None) -> str | None:
    return sha256(reply.text.encode("utf-8", "surrogatepass")) if reply else None
