"""Rows of one suite: as many as expected, each whole, and every number in it possible; what is missing says so and is little."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from gatevalve.contracts.canonical import SAFE_INTEGER
from gatevalve.contracts.files import ARMS, SCORE_ONE, Arm, Likelihood, PairRow, Style
from gatevalve.contracts.policy import SCREEN, EvidenceRules, Suite
from gatevalve.contracts.reasons import Finding

NAMED_ROWS = 3
"""Rows that a sentence names before it only counts."""

SCREEN_ARMS: tuple[Arm, ...] = ("candidate", "incumbent")
SCREEN_CLUSTERS = 2
"""Fewest clusters of a screen: one shows no variance."""

Problem = tuple[Finding, str]


def row_problem(suite: Suite, rows: Sequence[PairRow], expected: int | None, rules: EvidenceRules) -> Problem | None:
    """The first thing that is wrong with a suite's rows; later ones may not be looked for, as they lean on those before them."""
    return (
        _count(rows, expected)
        or _named_rows(rows, lambda row: _whole(suite, row), f"Rows do not hold {suite.decodes} answers of every arm")
        or _named_rows(rows, lambda row: _told_missing(suite, row), "An answer is neither whole nor told to be missing")
        or _range(suite, rows)
        or _missing(suite, rows, rules.max_missing_basis_points)
        or _clusters(suite, rows, rules.min_clusters)
    )


def named(names: Sequence[str]) -> str:
    """The first few names and how many more there are."""
    more = f" and {len(names) - NAMED_ROWS} more" if len(names) > NAMED_ROWS else ""
    return ", ".join(names[:NAMED_ROWS]) + more


def _count(rows: Sequence[PairRow], expected: int | None) -> Problem | None:
    twice = sorted(item for item, times in Counter(row.item for row in rows).items() if times > 1)
    if twice:
        return Finding.EVIDENCE_ROWS, f"Items appear more than once: {named(twice)}."
    if len(rows) != expected or not rows:
        return Finding.EVIDENCE_ROWS, f"There are {len(rows)} items where {expected} are expected."
    return None


def _named_rows(
    rows: Sequence[PairRow], right: Callable[[PairRow], bool], problem: str, finding: Finding = Finding.EVIDENCE_ROWS
) -> Problem | None:
    wrong = [row.item for row in rows if not right(row)]
    return (finding, f"{problem}: {named(wrong)}.") if wrong else None


def _arms(suite: Suite) -> tuple[Arm, ...]:
    return SCREEN_ARMS if suite.name == SCREEN else ARMS


def _whole(suite: Suite, row: PairRow) -> bool:
    """Every list holds one entry a decode, for just the arms that are asked; styles and likelihoods belong to Behaviour suites."""
    arms = set(_arms(suite))
    shown = suite.role == "Behaviour"
    if (row.styles is not None) != shown or (row.likelihoods is not None) != shown:
        return False
    lists: list[dict[Arm, Any]] = [row.scores, row.tokens, row.finishes, row.texts, row.failures]
    lists += [row.styles] if row.styles is not None else []
    whole = all(given.keys() == arms and all(len(given[arm]) == suite.decodes for arm in arms) for given in lists)
    return whole and (row.likelihoods is None or len(row.likelihoods) == suite.decodes)


def _told_missing(suite: Suite, row: PairRow) -> bool:
    """An answer is null everywhere where its failure is told, and nowhere else; Behaviour suites have no scores at all."""
    for arm in _arms(suite):
        missing = [failure is not None for failure in row.failures[arm]]
        unscored = [True] * suite.decodes if suite.role == "Behaviour" else missing
        if _nulls(row.scores[arm]) != unscored or any(_nulls(given) != missing for given in _answers(row, arm)):
            return False
    return True


def _answers(row: PairRow, arm: Arm) -> Iterator[Sequence[object]]:
    yield from (row.tokens[arm], row.finishes[arm], row.texts[arm])
    if row.styles is not None:
        yield row.styles[arm]
    if row.likelihoods is not None and arm == "candidate":
        yield row.likelihoods


def _nulls(values: Sequence[object]) -> list[bool]:
    return [value is None for value in values]


def _range(suite: Suite, rows: Sequence[PairRow]) -> Problem | None:
    return _named_rows(rows, partial(_in_range, suite.sampling.max_tokens), "A number is out of range", Finding.EVIDENCE_NUMBERS)


def _in_range(longest: int, row: PairRow) -> bool:
    scores = (score for given in row.scores.values() for score in given if score is not None)
    tokens = (count for given in row.tokens.values() for count in given if count is not None)
    if not (all(0 <= score <= SCORE_ONE for score in scores) and all(0 <= count <= longest for count in tokens)):
        return False
    styles = (style for given in (row.styles or {}).values() for style in given if style is not None)
    likelihoods = (likelihood for likelihood in row.likelihoods or () if likelihood is not None)
    return all(map(_possible_style, styles)) and all(map(_possible_likelihood, likelihoods))


def _possible_style(style: Style) -> bool:
    return 0 <= style.repetition <= SCORE_ONE


def _possible_likelihood(told: Likelihood) -> bool:
    """A probability is at most one, and r - 1 - ln r is never negative; no sum is larger than a record can hold."""
    sums, divergences = (told.candidate, told.incumbent, told.anchor), (told.k3_incumbent, told.k3_anchor)
    return min(sums) >= -SAFE_INTEGER and max(sums) <= 0 <= min(divergences) and max(divergences) <= SAFE_INTEGER


def _missing(suite: Suite, rows: Sequence[PairRow], most: int) -> Problem | None:
    """No reply of the engine and no score of the verifier are alike: the answer is missing."""
    for arm in _arms(suite):
        missing = sum(failure is not None for row in rows for failure in row.failures[arm])
        if missing * 10_000 > most * len(rows) * suite.decodes:
            return Finding.EVIDENCE_MISSING, f"{missing} of {len(rows) * suite.decodes} answers of the {arm} are missing."
    return None


def _clusters(suite: Suite, rows: Sequence[PairRow], fewest: int) -> Problem | None:
    needed = SCREEN_CLUSTERS if suite.name == SCREEN else fewest if suite.role in ("Primary", "Guard") else 1
    clusters = len({row.cluster for row in rows})
    return (Finding.EVIDENCE_SIZE, f"There are {clusters} clusters where {needed} are needed.") if clusters < needed else None
