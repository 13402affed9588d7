from pathlib import Path
from typing import Any

import pytest

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError
from gatevalve_trainer.evaluate.answers import Answer
from gatevalve_trainer.evaluate.journal import Journal, JournalHead
from gatevalve_trainer.evaluate.marks import mark_of

HEAD = JournalHead(test_digest=sha256(b"test"), subject_digest=sha256(b"subject"))
OTHER = JournalHead(test_digest=sha256(b"test"), subject_digest=sha256(b"another candidate"))


SEAL = bytes(range(32))


def line(each: Answer, seal: bytes = SEAL, head: JournalHead = HEAD) -> bytes:
    """An answer as a journal holds it."""
    return f"{mark_of(seal, f'answer {head.digest_of()}', each.canonical())} ".encode() + each.canonical() + b"\n"


def answer(item: str, score: int | None = 0) -> Answer:
    facts: dict[str, Any] = {"scores": (score,), "tokens": (3,), "finishes": ("stop",), "texts": (sha256(b"x"),), "failures": (None,)}
    return Answer(suite="target", item=item, arm="candidate", **facts)


def written(path: Path, *answers: Answer) -> None:
    with Journal(path, HEAD, SEAL) as journal:
        for each in answers:
            journal.append(each)


def resumed(path: Path) -> list[Answer]:
    with Journal(path, HEAD, SEAL) as journal:
        return list(journal.answers.values())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "evidence" / "partial.jsonl"


def test_answers_outlive_the_process(path: Path) -> None:
    written(path, answer("a"), answer("b", None))
    assert resumed(path) == [answer("a"), answer("b", None)]


def test_an_answer_is_in_the_file_before_the_next_question(path: Path) -> None:
    with Journal(path, HEAD, SEAL) as journal:
        journal.append(answer("a"))
        assert path.read_bytes().endswith(line(answer("a")))


@pytest.mark.parametrize("lost", [1, 10, len(answer("b").canonical())])
def test_a_torn_last_line_is_cut_off_and_written_over(path: Path, lost: int) -> None:
    written(path, answer("a"), answer("b"))
    path.write_bytes(path.read_bytes()[:-lost])
    assert resumed(path) == [answer("a")]
    written(path, answer("c"))
    assert resumed(path) == [answer("a"), answer("c")]


def test_a_journal_that_is_only_a_torn_head_starts_anew(path: Path) -> None:
    written(path)
    path.write_bytes(path.read_bytes()[:20])
    written(path, answer("a"))
    assert resumed(path) == [answer("a")]


def test_a_journal_of_another_test_or_arm_is_refused_and_left_as_it_is(path: Path) -> None:
    written(path, answer("a"))
    before = path.read_bytes()
    with pytest.raises(ContractError, match="another test, arm or item set"):
        Journal(path, OTHER, SEAL)
    assert path.read_bytes() == before


def test_a_line_in_the_middle_that_is_no_answer_is_refused(path: Path) -> None:
    written(path, answer("a"))
    path.write_bytes(path.read_bytes() + b"{}\n" + line(answer("b")))
    with pytest.raises(ContractError, match="line 3"):
        resumed(path)


def test_the_same_answer_twice_is_one_answer(path: Path) -> None:
    written(path, answer("a"))
    path.write_bytes(path.read_bytes() + line(answer("a")))
    assert resumed(path) == [answer("a")]


def test_two_different_answers_to_one_question_are_refused(path: Path) -> None:
    written(path, answer("a", 0))
    path.write_bytes(path.read_bytes() + line(answer("a", 1_000_000)))
    with pytest.raises(ContractError, match="two different answers"):
        resumed(path)


PLANTED = {
    "without a mark": answer("b").canonical() + b"\n",
    "with a mark of another seal": line(answer("b"), seal=bytes(32)),
    "from another test's journal": line(answer("b"), head=OTHER),
    "with another answer's mark": line(answer("a")).partition(b" ")[0] + b" " + answer("b").canonical() + b"\n",
    "that is no text": b"\xff\xfe\n",
}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_an_answer_that_no_evaluation_of_this_test_wrote_is_refused(path: Path, planted: bytes) -> None:
    written(path, answer("a"))
    path.write_bytes(path.read_bytes() + planted)
    with pytest.raises(ContractError, match="line 3: was not written by an evaluation"):
        resumed(path)


def test_a_journal_that_is_a_link_is_refused_and_what_it_leads_to_stays_as_it_is(path: Path) -> None:
    path.parent.mkdir(parents=True)
    other = path.with_name("pairs.jsonl.gz")
    other.write_bytes(b"a whole line\nand a part")
    path.symlink_to(other.name)
    with pytest.raises(ContractError, match="is a link"):
        resumed(path)
    assert other.read_bytes() == b"a whole line\nand a part"


def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"a whole line\nand a part")
    with pytest.raises(ContractError, match="another test, arm or item set"):
        resumed(path)
    assert path.read_bytes() == b"a whole line\nand a part"
