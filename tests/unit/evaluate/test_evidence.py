import gzip
from pathlib import Path
from typing import Any

import pytest

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError, IntegrityError
from gatevalve.contracts.files import ARMS, Arm, EvidenceReport, Likelihood, PairRow, Style
from gatevalve_trainer.evaluate.answers import Answer
from gatevalve_trainer.evaluate.evidence import Measured, pair_rows, publish_evidence, publish_file, published_evidence, table_bytes
from gatevalve_trainer.evaluate.marks import mark_of
from gatevalve_trainer.evaluate.rounds import Areas, Keys, LoadedSuite
from gatevalve_trainer.evaluate.suites import load_suites
from gatevalve_trainer.store import Area
from support.evaluation import SEAL, SPLIT, job, policy, write_suites

FOLDER = "sealed/channel-uid/evidence/support-000007"


def suites(root: Path) -> tuple[LoadedSuite, ...]:
    write_suites(root)
    work = job(root)
    return load_suites(work, Areas.of(work), Keys(SEAL, SPLIT))


STYLE = Style(repetition=0, markup=False, addresses_judge=False, avoids=False)
WEIGHED = Likelihood(candidate=-1, incumbent=-2, anchor=-3, k3_incumbent=1, k3_anchor=2)


def answers(loaded: tuple[LoadedSuite, ...]) -> dict[tuple[str, str, Arm], Answer]:
    found = [answer(each.suite.name, item.id, arm) for each in reversed(loaded) for item in each.items for arm in ARMS]
    return {answer.key: answer for answer in found}


def answer(suite: str, item: str, arm: Arm) -> Answer:
    facts: dict[str, Any] = {"scores": (1,), "tokens": (len(arm),), "finishes": ("stop",), "texts": (sha256(arm.encode()),)}
    form: dict[str, Any] = {"styles": (STYLE,), "likelihoods": (WEIGHED,) if arm == "candidate" else None}
    return Answer(suite=suite, item=item, arm=arm, failures=(None,), **facts, **(form if suite == "manners" else {}))


def table(root: Path) -> bytes:
    loaded = suites(root)
    return table_bytes(pair_rows(job(root), loaded, answers(loaded)))


def rows(raw: bytes) -> list[PairRow]:
    return [PairRow.parse_json(line) for line in gzip.decompress(raw).splitlines()]


def test_rows_come_in_the_order_of_the_policy_and_then_by_item(tmp_path: Path) -> None:
    found = [(row.suite, row.item) for row in rows(table(tmp_path))]
    order = ["target", "regression", "manners"]
    assert found == sorted(found, key=lambda row: (order.index(row[0]), row[1]))
    assert [[name for name, _ in found].count(name) for name in order] == [40, 30, 10]


def test_a_row_holds_every_arm_with_its_own_answer(tmp_path: Path) -> None:
    assert rows(table(tmp_path))[0].tokens == {"candidate": (9,), "incumbent": (9,), "anchor": (6,)}


def test_only_rows_of_behaviour_suites_hold_styles_and_the_candidates_likelihoods(tmp_path: Path) -> None:
    found = {row.suite: (row.styles, row.likelihoods) for row in rows(table(tmp_path))}
    styles = dict.fromkeys(ARMS, (STYLE,))
    assert found == {"target": (None, None), "regression": (None, None), "manners": (styles, (WEIGHED,))}


def test_rows_of_the_screen_come_first_and_are_about_candidate_and_incumbent(tmp_path: Path) -> None:
    write_suites(tmp_path)
    work = job(tmp_path, policy=policy(futility={"items": 20, "alphaBasisPoints": 5000}))
    loaded = load_suites(work, Areas.of(work), Keys(SEAL, SPLIT))
    found = list(pair_rows(work, loaded, answers(loaded)))
    assert [row.suite for row in found[:20]] == ["screen"] * 20
    assert [set(row.scores) for row in (found[0], found[20])] == [{"candidate", "incumbent"}, set(ARMS)]


def test_a_shared_anchor_has_the_incumbents_answers(tmp_path: Path) -> None:
    loaded = suites(tmp_path)
    work = job(tmp_path, arms={"candidate": "c", "incumbent": "tiny-words", "anchor": "tiny-words"})
    row = next(pair_rows(work, loaded, {key: answer for key, answer in answers(loaded).items() if key[2] != "anchor"}))
    assert row.texts["anchor"] == row.texts["incumbent"] != row.texts["candidate"]


def test_equal_rows_give_equal_bytes_without_a_time_in_them(tmp_path: Path) -> None:
    raw = table(tmp_path)
    assert raw == table(tmp_path)
    assert raw[4:8] == bytes(4)  # RFC 1952: MTIME


def published(root: Path, engine: str = "vllm 0.32.0") -> str:
    measured = Measured("Full", suites(root), engine)
    return publish_evidence(Area(job(root).sealed), job(root), measured, table(root), SEAL).evidence_digest


def test_the_digest_of_the_report_is_what_the_job_says(tmp_path: Path) -> None:
    digest = published(tmp_path)
    raw = (tmp_path / FOLDER / "report.json").read_bytes()
    assert sha256(raw) == digest
    report = EvidenceReport.parse_json(raw)
    assert report.canonical() == raw
    assert report.pairs.sha256 == sha256((tmp_path / FOLDER / "pairs.jsonl.gz").read_bytes())
    assert [(fact.name, fact.items, fact.path) for fact in report.suites] == [
        ("target", 40, "channel-uid/rounds/000003/items-target.jsonl"),
        ("regression", 30, "suites/regression.jsonl"),
        ("manners", 10, "suites/manners.jsonl"),
    ]


def test_a_finished_test_is_reported_again(tmp_path: Path) -> None:
    digest = published(tmp_path)
    found = published_evidence(Area(job(tmp_path).sealed), job(tmp_path), SEAL)
    assert found is not None
    assert found.evidence_digest == digest == published(tmp_path)


def test_a_test_without_a_report_has_no_evidence(tmp_path: Path) -> None:
    publish_file(tmp_path / FOLDER / "pairs.jsonl.gz", b"x")
    assert published_evidence(Area(job(tmp_path).sealed), job(tmp_path), SEAL) is None


def test_a_different_report_is_refused_and_the_first_one_stays(tmp_path: Path) -> None:
    published(tmp_path)
    before = (tmp_path / FOLDER / "report.json").read_bytes()
    with pytest.raises(ContractError, match="holds other evidence"):
        published(tmp_path, engine="vllm 0.33.0")
    assert (tmp_path / FOLDER / "report.json").read_bytes() == before
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == ["pairs.jsonl.gz", "report.json"]


FOREIGN = {
    "another candidate": {"candidate_digest": sha256(b"other")},
    "another incumbent": {"incumbent_digest": None},
    "another anchor": {"anchor_digest": sha256(b"other")},
    "another test entry's digest": {"test_digest": sha256(b"other")},
    "another round": {"round": 4},
    "another candidate object": {"candidate_uid": "other"},
    "other models behind the arms": {"arms": {"candidate": "x", "incumbent": "support-bbbbbbbb", "anchor": "tiny-words"}},
}


def planted(root: Path, seal: bytes | None) -> None:
    """A report as somebody without the seal writes it: right in every name and digest."""
    published(root)
    path = root / FOLDER / "report.json"
    report = EvidenceReport.parse_json(path.read_bytes()).model_copy(update={"mark": None})
    mark = None if seal is None else mark_of(seal, "report.json", report.canonical())
    path.write_bytes(report.model_copy(update={"mark": mark}).canonical())


@pytest.mark.parametrize("seal", [None, bytes(32)], ids=["without a mark", "with a mark of another seal"])
def test_a_report_that_no_evaluation_wrote_is_refused(seal: bytes | None, tmp_path: Path) -> None:
    planted(tmp_path, seal)
    with pytest.raises(ContractError, match=r"report\.json: was not written by an evaluation"):
        published_evidence(Area(job(tmp_path).sealed), job(tmp_path), SEAL)


def test_a_report_of_another_round_cannot_take_this_ones_mark(tmp_path: Path) -> None:
    published(tmp_path)
    path = tmp_path / FOLDER / "report.json"
    path.write_bytes(EvidenceReport.parse_json(path.read_bytes()).model_copy(update={"round": 4}).canonical())
    with pytest.raises(ContractError, match="was not written by an evaluation"):
        published_evidence(Area(job(tmp_path).sealed), job(tmp_path, round=4), SEAL)


@pytest.mark.parametrize("target", ["nowhere", "pairs.jsonl.gz"], ids=["to nothing", "to a file with the same bytes"])
def test_a_link_where_evidence_goes_is_refused_and_not_followed(target: str, tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / FOLDER / "pairs.jsonl.gz").write_bytes(b"table")
    (tmp_path / FOLDER / "link").symlink_to(target)
    with pytest.raises(ContractError, match="holds other evidence"):
        publish_file(tmp_path / FOLDER / "link", b"table")
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == ["link", "pairs.jsonl.gz"]


@pytest.mark.parametrize("changes", FOREIGN.values(), ids=FOREIGN)
def test_a_report_made_for_something_else_is_refused(changes: dict[str, object], tmp_path: Path) -> None:
    published(tmp_path)
    with pytest.raises(ContractError, match="was made for another test"):
        published_evidence(Area(job(tmp_path).sealed), job(tmp_path, **changes), SEAL)


def test_a_report_whose_table_was_changed_is_refused(tmp_path: Path) -> None:
    published(tmp_path)
    (tmp_path / FOLDER / "pairs.jsonl.gz").write_bytes(b"other")
    with pytest.raises(IntegrityError, match=r"pairs\.jsonl\.gz"):
        published_evidence(Area(job(tmp_path).sealed), job(tmp_path), SEAL)
