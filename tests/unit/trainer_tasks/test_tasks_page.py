import random
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from gatevalve.contracts.files import FEWEST_CANARIES, Canary
from gatevalve.contracts.names import JUDGE_KEY, JUDGE_SECRET
from gatevalve.contracts.policy import Suite
from gatevalve_trainer.evaluate.items import from_lines
from gatevalve_trainer.tasks.plugin import checked_score, first_user_message, load, referred

pytestmark = pytest.mark.docs

PAGE = (Path(__file__).parents[3] / "docs" / "tasks.md").read_text()


def block(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(text)


def install_example(folder: Path) -> None:
    (folder / "city_facts.py").write_text(block("python"))
    points = tomllib.loads(block("toml"))["project"]["entry-points"]["gatevalve.tasks"]
    metadata = folder / "city_facts-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: city-facts\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[gatevalve.tasks]\n" + "".join(f"{name} = {value}\n" for name, value in points.items()))


def test_the_example_task_installs_generates_answers_and_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_example(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    task = load("city-facts")
    assert task.generate is not None
    items = [task.generate(random.Random(seed)) for seed in range(200)]
    assert len({first_user_message(item) for item in items}) == 12  # as the page says
    assert [referred(task, item.messages) for item in items] == [item.answer for item in items]
    assert referred(task, [{"role": "user", "content": "Hello"}]) is None
    assert checked_score(task, items[0], f"It is {items[0].answer}.") == 1
    assert checked_score(task, items[0], "I do not know.") == 0
    assert checked_score(task, items[0].model_copy(update={"answer": None}), "Paris") is None


def test_the_example_line_of_a_fixed_suite_is_an_item() -> None:
    assert from_lines("the page", block("json").encode())[0].answer == "Ben"


def test_the_example_of_a_judged_suite_is_one() -> None:
    judge = Suite.parse(yaml.safe_load(block("yaml"))).judge
    assert judge is not None
    assert judge.model == "judge-70b"


def test_the_example_canary_is_one() -> None:
    assert Canary.parse_json(block("jsonl")).better.startswith("Open Settings")


def test_the_page_names_the_secret_that_the_evaluation_reads() -> None:
    assert f"key `{JUDGE_KEY}` of Secret `{JUDGE_SECRET}`" in PAGE
    assert f"at least {FEWEST_CANARIES} pairs" in PAGE
