from pathlib import Path

import pytest

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError
from gatevalve_trainer.evaluate.answers import Answer
from gatevalve_trainer.evaluate.journal import Journal, JournalHead

HEAD = JournalHead(test_digest=sha256(b"test"), subject_digest=sha256(b"subject"))
OTHER = JournalHead(test_digest=sha256(b"test"), subject_digest=sha256(b"another candidate"))


def answer(item: str, score: int | None = 0) -> Answer:
    return Answer(suite="target", item=item, arm="candidate", scores=(score,), tokens=(3,), finishes=("stop",), texts=(sha256(b"x"),))


def written(path: Path, *answers: Answer) -> None:
    with Journal(path, HEAD) as journal:
        for each in answers:
            journal.append(each)


def resumed(path: Path) -> list[Answer]:
    with Journal(path, HEAD) as journal:
        return list(journal.answers.values())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "evidence" / "partial.jsonl"


def test_answers_outlive_the_process(path: Path) -> None:
    written(path, answer("a"), answer("b", None))
    assert resumed(path) == [answer("a"), answer("b", None)]


def test_an_answer_is_in_the_file_before_the_next_question(path: Path) -> None:
    with Journal(path, HEAD) as journal:
        journal.append(answer("a"))
        assert path.read_bytes().endswith(answer("a").canonical() + b"\n")


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
        Journal(path, OTHER)
    assert path.read_bytes() == before


def test_a_line_in_the_middle_that_is_no_answer_is_refused(path: Path) -> None:
    written(path, answer("a"))
    path.write_bytes(path.read_bytes() + b"{}\n" + answer("b").canonical() + b"\n")
    with pytest.raises(ContractError, match="Answer"):
        resumed(path)


def test_the_same_answer_twice_is_one_answer(path: Path) -> None:
    written(path, answer("a"))
    path.write_bytes(path.read_bytes() + answer("a").canonical() + b"\n")
    assert resumed(path) == [answer("a")]


def test_two_different_answers_to_one_question_are_refused(path: Path) -> None:
    written(path, answer("a", 0))
    path.write_bytes(path.read_bytes() + answer("a", 1_000_000).canonical() + b"\n")
    with pytest.raises(ContractError, match="two different answers"):
        resumed(path)
