"""Makes the demo's fixed suites, byte for byte: `python -m demo.suites.make` writes them, `--check` compares them with what is committed.

No prompt of theirs was in the base's corpus, so they measure skill and not memory. That is why the kinds of regression.jsonl are uneven:
of the 720 ways to ask for three digits to be sorted, the corpus holds all but about 40.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from demo.base import corpus
from gatevalve.contracts.files import Item
from gatevalve_trainer.tasks import short_answers, word_problems
from gatevalve_trainer.tasks.plugin import single_turn

FOLDER = Path(__file__).parent
REGRESSION_COUNTS = {"reverse": 147, "last": 146, "larger": 147, "sort": 40, "calc": 120}
REGRESSION_SEED = 7001
MANNERS_COUNT, MANNERS_SEED = 60, 7002


def regression(known: Collection[str]) -> Iterator[Item]:
    """600 short questions with one right text; `known` holds the prompts that must not occur."""
    rng = random.Random(REGRESSION_SEED)
    seen = set(known)
    for kind, count in REGRESSION_COUNTS.items():
        for _ in range(count):
            question = _fresh(rng, kind, seen)
            seen.add(question.prompt)
            yield single_turn(question.prompt, question.answer, kind)


def manners(known: Collection[str]) -> Iterator[Item]:
    """60 word problems without their answers: only the form of the replies to them is compared."""
    for item in word_problems.stream(MANNERS_COUNT, MANNERS_SEED, exclude=known):
        yield item.model_copy(update={"answer": None})


def lines(items: Iterator[Item]) -> bytes:
    """A suite file: one item a line in canonical JSON, sorted by id so that kinds are mixed."""
    return b"".join(item.canonical() + b"\n" for item in sorted(items, key=lambda item: item.id))


def suites() -> dict[str, bytes]:
    """The bytes of every suite file by its name."""
    known = corpus.prompts()
    return {"regression.jsonl": lines(regression(known)), "manners.jsonl": lines(manners(known))}


def main() -> int:
    """Write or check the files; 1 when a committed file differs."""
    parser = argparse.ArgumentParser(description="Makes the demo's fixed suites.")
    parser.add_argument("--check", action="store_true", help="compare with the committed files and write nothing")
    check = parser.parse_args().check
    stale = [name for name, data in suites().items() if not _settled(FOLDER / name, data, check)]
    for name in stale:
        print(f"demo/suites/{name} differs from what demo/suites/make.py makes; run: python -m demo.suites.make", file=sys.stderr)
    return 1 if stale else 0


def _settled(path: Path, data: bytes, check: bool) -> bool:
    if check:
        return path.exists() and path.read_bytes() == data
    path.write_bytes(data)
    return True


def _fresh(rng: random.Random, kind: str, seen: Collection[str]) -> short_answers.Question:
    while (question := short_answers.KINDS[kind](rng)).prompt in seen:
        pass
    return question


if __name__ == "__main__":
    sys.exit(main())
