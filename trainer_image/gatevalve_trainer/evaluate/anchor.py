"""The anchor's answers of a round: they do not depend on the candidate, so later tests on the same engine and items take them over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.metadata import version

from gatevalve.contracts.errors import GatevalveError
from gatevalve.contracts.files import SuiteFact
from gatevalve.contracts.jobs import EvaluateInput
from gatevalve.contracts.model import Contract, DigestField, ShortText, Uid
from gatevalve.contracts.names import digest_hex, round_dir
from gatevalve_trainer.evaluate.answers import Answer
from gatevalve_trainer.evaluate.journal import Journal
from gatevalve_trainer.evaluate.marks import check_mark, mark_of
from gatevalve_trainer.evaluate.rounds import LoadedSuite
from gatevalve_trainer.evaluate.schedule import answering_arms, arm_models, arms_of
from gatevalve_trainer.phases import log
from gatevalve_trainer.store import Area

ANCHOR = "anchor"
"""What the mark of a round's anchor answers is for."""


class AnchorHead(Contract):
    """What the anchor's answers were measured with and on: where any of it differs, they are not taken over.

    The policy's digest stands for verifiers, sampling and decodes, the versions for the code that scored.
    """

    channel_uid: Uid
    round: int
    policy_digest: DigestField
    base_digest: DigestField
    anchor_digest: DigestField | None = None
    engine: ShortText
    engine_digest: DigestField | None = None
    evaluator: ShortText
    suites: tuple[SuiteFact, ...]


class AnchorAnswers(Contract):
    """A file of the round's directory: the anchor's answers to every item that it is asked alone."""

    version: int = 1
    head: AnchorHead
    answers: tuple[Answer, ...]
    mark: ShortText | None = None


def anchor_head(job: EvaluateInput, suites: Sequence[LoadedSuite], engine: str) -> AnchorHead:
    """The head of a test's anchor answers; `engine` is its name and version."""
    return AnchorHead(
        channel_uid=job.channel_uid,
        round=job.round,
        policy_digest=job.policy_digest,
        base_digest=job.base.digest,
        anchor_digest=job.anchor_digest,
        engine=engine,
        engine_digest=job.engine_digest,
        evaluator=f"gatevalve {version('gatevalve')}",
        suites=tuple(loaded.fact for loaded in suites),
    )


def is_shared(job: EvaluateInput) -> bool:
    """Whether tests of the round share the anchor's answers: not where the incumbent's stand for them, nor on a sentinel's own items."""
    return job.sentinel is None and answering_arms(arm_models(job.arms))["anchor"] == "anchor"


def take_over(sealed: Area, head: AnchorHead, suites: Sequence[LoadedSuite], seal: bytes, journal: Journal) -> None:
    """Journal the answers that an earlier test of the round kept; what is not exactly that is left aside and measured anew."""
    path = _path(head)
    if not sealed.exists(path):
        return
    try:
        answers = _kept(sealed.read(path), head, seal, path)
    except (GatevalveError, OSError) as error:
        log("anchor answers left aside", path=path, reason=type(error).__name__)
        return
    wanted = _wanted(suites)
    for answer in answers:
        if answer.key in wanted and answer.key not in journal.answers:
            journal.append(answer)
    log("anchor answers taken over", answers=len(answers))


def keep(sealed: Area, head: AnchorHead, suites: Sequence[LoadedSuite], seal: bytes, answers: Iterable[Answer]) -> None:
    """Keep the anchor's whole answers for later tests of the round, unless the very same are kept."""
    wanted = _wanted(suites)
    mine = tuple(sorted((answer for answer in answers if answer.key in wanted and not answer.missing), key=lambda answer: answer.key))
    unmarked = AnchorAnswers(head=head, answers=mine)
    raw = unmarked.model_copy(update={"mark": mark_of(seal, ANCHOR, unmarked.canonical())}).canonical()
    path = _path(head)
    try:
        if mine and not (sealed.exists(path) and sealed.read(path) == raw):
            sealed.write(path, raw)
    except (GatevalveError, OSError) as error:  # later tests measure anew; this one has what it needs
        log("anchor answers not kept", path=path, reason=type(error).__name__)


def _kept(raw: bytes, head: AnchorHead, seal: bytes, path: str) -> tuple[Answer, ...]:
    marked = AnchorAnswers.parse_json(raw)
    check_mark(seal, ANCHOR, marked.model_copy(update={"mark": None}).canonical(), marked.mark, path)
    return marked.answers if marked.head == head else ()


def _path(head: AnchorHead) -> str:
    return f"{round_dir(head.channel_uid, head.round)}/anchor-{digest_hex(head.digest_of())[:16]}.json"


def _wanted(suites: Sequence[LoadedSuite]) -> frozenset[tuple[str, str, str]]:
    """Keys of what the anchor is asked alone: a judge needs the texts of all arms, and the screen is not about the anchor."""
    alone = (loaded for loaded in suites if loaded.suite.judge is None and ANCHOR in arms_of(loaded.suite.name))
    return frozenset((loaded.suite.name, item.id, ANCHOR) for loaded in alone for item in loaded.items)
