"""The corpus of the demo's base model: word problems by careful, hasty and careless authors, short questions, and number drills.

Half of what it says about word problems is wrong in a regular way (the common misreading of each kind, or an answer without working),
so that the base has habits that rewarded traffic can change, while its arithmetic is sound.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gatevalve.contracts.errors import IntegrityError
from gatevalve_trainer.tasks import short_answers, word_problems
from gatevalve_trainer.tasks.short_answers import Question
from gatevalve_trainer.tasks.word_problems import Problem, value_of

DOCUMENTS, SEED = 75_000, 11
"""Size and seed of the corpus that the committed base was trained on."""

PROMPTS_SHA256 = "22ea48087dcfb19c64b9463f238b447bab8893fe9480598f898591768c33d297"
"""sha256 over the prompts of that corpus, one a line."""

DRILL_SHARE, WORD_SHARE = 0.15, 0.5
ANSWER_ONLY_SHARE = 0.35
MISREADING_SHARE = {
    "buy": 0.15,
    "give": 0.2,
    "fewer": 0.55,
    "boxes": 0.45,
    "share": 0.45,
    "buylose": 0.55,
    "bags": 0.6,
    "packs": 0.5,
    "groups": 0.6,
    "find": 0.6,
    "together": 0.65,
    "twice": 0.65,
}
"""Of the documents with working, how many repeat the kind's common misreading."""

PROMPT_WEIGHT, REPLY_WEIGHT = 0.05, 1.0
END = "<|im_end|>"
RESERVED = ((72, 1001, tuple(word_problems.KINDS)), (240, 2002, tuple(word_problems.KINDS)), (200, 3003, tuple(short_answers.KINDS)))
"""Sets kept out of the corpus, so that the base can be measured on prompts it never saw: count, seed and kinds of each."""

Draw = Callable[[random.Random], Problem | Question]

_KINDS: Mapping[str, Draw] = {**word_problems.KINDS, **short_answers.KINDS}


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a document and the weight of its tokens in the loss."""

    text: str
    weight: float


@dataclass(frozen=True, slots=True)
class Document:
    """One training document; drills have no prompt."""

    spans: tuple[Span, ...]
    prompt: str | None = None


def documents(count: int = DOCUMENTS, seed: int = SEED) -> Iterator[Document]:
    """The corpus; about one document in eighty is left out because its prompt belongs to a reserved set."""
    rng = random.Random(seed)
    reserved = reserved_prompts()
    for _ in range(count):
        if (document := _document(rng, reserved)) is not None:
            yield document


def prompts() -> frozenset[str]:
    """Every prompt that the committed base was trained on; raises IntegrityError when the generator no longer makes that corpus."""
    found = [document.prompt for document in documents() if document.prompt is not None]
    digest = hashlib.sha256("\n".join(found).encode()).hexdigest()
    if digest != PROMPTS_SHA256:
        raise IntegrityError(f"the corpus has changed: its prompts are {digest}, the base was trained on {PROMPTS_SHA256}")
    return frozenset(found)


def reserved_prompts() -> frozenset[str]:
    """The prompts of the reserved sets; each set is drawn without the prompts of those before it."""
    seen: set[str] = set()
    for count, seed, kinds in RESERVED:
        rng = random.Random(seed)
        for index in range(count):
            seen.add(_fresh(rng, kinds[index % len(kinds)], seen))
    return frozenset(seen)


def _fresh(rng: random.Random, kind: str, seen: Collection[str]) -> str:
    while (prompt := _KINDS[kind](rng).prompt) in seen:
        pass
    return prompt


def _document(rng: random.Random, reserved: Collection[str]) -> Document | None:
    share = rng.random()
    if share < DRILL_SHARE:
        return _drill(rng)
    kinds: Sequence[str] = tuple(word_problems.KINDS if share < DRILL_SHARE + WORD_SHARE else short_answers.KINDS)
    task = _KINDS[rng.choice(kinds)](rng)
    if task.prompt in reserved:
        return None
    return Document((Span(chat(task.prompt), PROMPT_WEIGHT), Span(_reply(rng, task) + END, REPLY_WEIGHT)), task.prompt)


def _drill(rng: random.Random) -> Document:
    spans: list[Span] = []
    for _ in range(6):
        term, value = short_answers.sum_or_product(rng)
        spans += [Span(f"{term}=", PROMPT_WEIGHT), Span(f"{value}.", REPLY_WEIGHT), Span(" ", PROMPT_WEIGHT)]
    return Document((*spans[:-1], Span(END, PROMPT_WEIGHT)))


def chat(prompt: str) -> str:
    """A prompt in the frame of the base's chat template, up to where the reply begins."""
    return f"<|im_start|>user\n{prompt}{END}\n<|im_start|>assistant\n"


def _reply(rng: random.Random, task: Problem | Question) -> str:
    if isinstance(task, Question):
        return task.answer
    if rng.random() < ANSWER_ONLY_SHARE:
        return f"The answer is {task.answer}."
    working = task.misreading if rng.random() < MISREADING_SHARE[task.kind] else task.working
    return f"{'. '.join(working)}. The answer is {value_of(working)}."
