import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatevalve.contracts.errors import ContractError
from gatevalve_trainer.tasks import short_answers, word_problems
from gatevalve_trainer.tasks.plugin import first_user_message, single_turn
from gatevalve_trainer.tasks.word_problem_answers import answer_to, refer
from gatevalve_trainer.tasks.word_problems import KINDS, generate, held_out, is_held_out, stream, verify

ITEM = single_turn("Ann has 9 apples and buys 8 more. How many apples does Ann have?", "17")

REPLIES = {
    "the right number with working": ("9+8=17. The answer is 17.", 1.0),
    "the right number alone": ("The answer is 17.", 1.0),
    "the last statement counts, not the first": ("The answer is 1. The answer is 17.", 1.0),
    "a right statement that is taken back": ("The answer is 17. The answer is 1.", 0.0),
    "another number": ("The answer is 18.", 0.0),
    "a number that only begins with the right one": ("The answer is 170.", 0.0),
    "a number without the sentence": ("17", 0.0),
    "a sentence that is cut off": ("9+8=17. The answer is 17", 0.0),
    "nothing": ("", 0.0),
}


@pytest.mark.parametrize(("reply", "score"), REPLIES.values(), ids=REPLIES)
def test_a_reply_is_scored_by_its_last_statement(reply: str, score: float) -> None:
    assert verify(ITEM, reply) == score


REFERRED = {
    "of another number": ("Jo has 100 marbles and buys 250 more. How many marbles does Jo have?", "350"),
    "with space around it": ("  Ann has 9 apples and buys 8 more. How many apples does Ann have?\n", "17"),
    "that does not come out even": ("Ann shares 7 pens equally among 2 friends. How many pens does each get?", None),
    "that shares among nobody": ("Ann shares 7 pens equally among 0 friends. How many pens does each get?", None),
    "with fewer things than are given away": ("Ann has 2 pens and gives 7 to Ben. How many pens does Ann have?", None),
    "about one thing that asks for another": ("Ann has 9 apples and buys 8 more. How many pens does Ann have?", None),
    "with more after it": ("Ann has 9 apples and buys 8 more. How many apples does Ann have? Say why.", None),
    "that is none": ("What is the capital of France?", None),
    "that is empty": ("", None),
}


@pytest.mark.parametrize("sentence", REFERRED)
def test_the_reference_answers_a_problem(sentence: str) -> None:
    prompt, answer = REFERRED[sentence]
    assert refer(single_turn(prompt, None).messages) == answer


@given(st.integers(min_value=0))
@settings(max_examples=300, deadline=None)
def test_the_reference_reads_every_problem_back_that_is_generated(seed: int) -> None:
    item = generate(random.Random(seed))
    assert refer(item.messages) == item.answer


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_knows_each_kind(kind: str) -> None:
    rng = random.Random(7)
    problems = [KINDS[kind](rng) for _ in range(200)]
    assert [answer_to(problem.prompt) for problem in problems] == [problem.answer for problem in problems]


def test_the_reference_answers_the_last_message_when_it_is_a_users() -> None:
    asked = ITEM.messages[0]
    said = {"role": "assistant", "content": asked["content"]}
    assert (refer([{"role": "user", "content": "Hello"}, said, asked]), refer([asked, said]), refer([])) == ("17", None, None)


@given(st.text())
def test_the_reference_takes_any_text(text: str) -> None:
    assert answer_to(text) is None or re.search(r"\d", text)


def test_an_item_without_an_answer_cannot_be_scored() -> None:
    with pytest.raises(ValueError, match="no answer"):
        verify(ITEM.model_copy(update={"answer": None}), "The answer is 17.")


@pytest.mark.parametrize("kind", KINDS)
def test_every_equation_of_a_working_holds_and_its_last_value_is_the_answer(kind: str) -> None:
    rng = random.Random(1)
    for _ in range(200):
        problem = KINDS[kind](rng)
        for equation in (*problem.working, *problem.misreading):
            left, sign, right, value = re.fullmatch(r"(\d+)([-+*/])(\d+)=(-?\d+)", equation).groups()  # type: ignore[union-attr]
            assert {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}.get(
                sign, int(left) / int(right)
            ) == int(value)
        assert problem.working[-1].endswith(f"={problem.answer}")


def test_the_same_seed_draws_the_same_stream_and_another_seed_another() -> None:
    assert stream(48, 5) == stream(48, 5)
    assert {item.id for item in stream(48, 5)} != {item.id for item in stream(48, 6)}


def test_a_stream_holds_every_kind_equally_often_and_no_problem_twice() -> None:
    items = stream(240, 5)
    assert sorted(item.kind or "" for item in items) == sorted(list(KINDS) * 20)
    assert len({item.id for item in items}) == 240


def test_excluded_prompts_do_not_occur() -> None:
    known = {first_user_message(item) for item in stream(48, 5)}
    assert known.isdisjoint(first_user_message(item) for item in stream(48, 5, exclude=known))


def test_neither_traffic_nor_gate_ever_sees_a_held_out_problem() -> None:
    rng = random.Random(3)
    assert all(is_held_out(first_user_message(item)) for item in held_out(240, 9))
    assert not any(is_held_out(first_user_message(item)) for item in stream(1200, 9))
    assert not any(is_held_out(first_user_message(generate(rng))) for _ in range(1200))


def test_asking_for_more_problems_than_exist_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_problems, "MAX_REPEATS", 50)
    with pytest.raises(ContractError, match="used up after 0"):
        stream(1, 5, exclude=Everything())


class Everything(frozenset[str]):
    def __contains__(self, prompt: object) -> bool:
        return True


def test_short_questions_have_one_right_text() -> None:
    rng = random.Random(2)
    for question in (draw(rng) for draw in short_answers.KINDS.values() for _ in range(100)):
        assert question.answer == right_text(question.prompt)


def right_text(prompt: str) -> str:
    head, _, rest = prompt.partition(": ")
    words = rest.split()
    if head == "Reverse":
        return " ".join(words[::-1])
    if head == "Last of":
        return words[-1]
    if head == "Sort":
        return " ".join(sorted(words))
    if head == "Number only":
        return str(int(eval(rest)))
    return str(max(map(int, re.findall(r"\d+", prompt))))
