"""The evaluation engine's arguments, put to the parser of the vLLM that is installed: ours are in force, a channel's are what they say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gatevalve.contracts.engine_options import ENGINE_OPTIONS
from gatevalve.contracts.kinds import Evaluation
from support.world import World, channel_spec

pytestmark = pytest.mark.component

PARSE = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
facts = vars(parser.parse_args(json.loads(sys.argv[1])))
print(json.dumps([list(parser._option_string_actions), facts], default=lambda value: getattr(value, "name", str(value))))
"""
HOSTILE = ("--host", "0.0.0.0", "--port", "8000", "--enable-log-requests", "--enable-log-outputs", "--served-model-name", "other")
HOSTILE_MODELS = ("--max-loras", "1", "--no-enable-lora", "--max-lora-rank", "512", "--lora-modules", "evil=/models/evil")
TRAINING_PAGE = Path(__file__).parents[3] / "docs" / "training.md"


@cache
def engine_args() -> tuple[str, ...]:
    """The engine's arguments in a channel whose own try to take the place of ours, past the contract that refuses them."""
    spec = channel_spec()
    evaluation = Evaluation.model_construct(**dict(spec.evaluation)).model_copy(update={"engine_args": (*HOSTILE, *HOSTILE_MODELS)})
    world = World(spec=spec.model_copy(update={"evaluation": evaluation}))
    world.run()
    world.apply("monday")
    world.run()
    job = next(job for job in world.jobs.values() if job.view.step == "evaluate")
    engine = next(item for item in job.manifest["spec"]["template"]["spec"]["initContainers"] if item["name"] == "engine")
    return tuple(engine["args"])


@cache
def parsed() -> tuple[frozenset[str], dict[str, Any]]:
    """vLLM's options, and what it makes of the arguments; in a process of its own, because importing vLLM changes this one."""
    command = [sys.executable, "-c", PARSE, json.dumps(engine_args()[1:])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    options, facts = json.loads(done.stdout.splitlines()[-1])
    return frozenset(options), facts


def test_what_the_engine_serves_and_where_is_ours_whatever_the_channel_says() -> None:
    facts = parsed()[1]
    assert (facts["model_tag"], facts["served_model_name"]) == ("/models/tiny-words", ["tiny-words"])
    assert (facts["host"], facts["port"], facts["middleware"]) == ("127.0.0.1", 8471, [])
    assert (facts["enable_lora"], facts["max_loras"], facts["max_lora_rank"]) == (True, 3, 8)
    assert [name.partition("-")[0] for name in facts["lora_modules"]] == ["candidate"]  # the other arms are the base


def test_the_engine_writes_no_request_and_no_reply_to_its_log() -> None:
    facts = parsed()[1]
    assert (facts["enable_log_requests"], facts["enable_log_outputs"]) == (False, False)


def test_every_option_that_a_channel_may_set_is_one_of_the_engine_by_its_whole_name() -> None:
    assert set(ENGINE_OPTIONS) <= parsed()[0]


def test_the_page_on_training_lists_the_options_that_a_channel_may_set() -> None:
    listed = re.findall(r"`(--[a-z0-9-]+)`", TRAINING_PAGE.read_text())
    assert sorted(listed) == sorted(ENGINE_OPTIONS)
