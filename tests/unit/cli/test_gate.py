"""`kubectl gatevalve gate`: what it says of a channel's tests, of a policy's power and of the incumbent's noise, without a cluster."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gatevalve.cli.main import main
from gatevalve.contracts.canonical import canonical_json, sha256
from gatevalve.contracts.files import EvidenceReport, FileFact, PairRow
from gatevalve.contracts.names import API_VERSION
from gatevalve.contracts.policy import GatePolicySpec
from support.audited import ACCEPTED, AuditedWorld, Life
from support.engine_world import release_object, signer
from support.gate_cases import case_of, good_rows, manners_rows, policy_of
from support.world import policy

REPO = Path(__file__).parents[3]
ACCEPTED_TEST, REJECTED_TEST = f"support-{ACCEPTED - 1:06d}", "support-000004"
Out = Callable[[], str]


@pytest.fixture
def out(capsys: pytest.CaptureFixture[str]) -> Out:
    return lambda: capsys.readouterr().out


def source(root: Path) -> list[str]:
    """Options that need no cluster."""
    certificate = root / "signing-operator" / "tls.crt"
    return ["--offline", "--certificate", str(certificate), "--log", str(root / "log"), "--sealed", str(root / "sealed")]


def written(directory: Path, spec: GatePolicySpec | dict[str, Any]) -> str:
    path = directory / "new.yaml"
    wire = spec.wire() if isinstance(spec, GatePolicySpec) else spec
    path.write_text(yaml.safe_dump({"apiVersion": API_VERSION, "kind": "GatePolicy", "metadata": {"name": "new"}, "spec": wire}))
    return str(path)


def error(capsys: pytest.CaptureFixture[str], argv: list[str]) -> str:
    assert main(argv) == 2
    return capsys.readouterr().err


# ---- replay


def replay(life: Life, out: Out, spec: GatePolicySpec | None, *more: str, status: int = 0) -> dict[str, Any]:
    given = ["--policy", written(life.root, spec)] if spec else []
    assert main(["gate", "replay", "support", *given, *source(life.root), *more, "--json"]) == status
    found: dict[str, Any] = json.loads(out())
    return found


def now(found: dict[str, Any]) -> dict[str, tuple[str | None, str | None, bool | None]]:
    return {test["entry"]: (test["verdict_now"], test["reason_now"], test["changed"]) for test in found["tests"]}


def test_under_its_own_policy_nothing_would_have_changed(life: Life, out: Out) -> None:
    found = replay(life, out, policy())
    assert (found["relation"], found["differences"], found["policyDigest"]) == ("Equal", [], policy().digest_of())
    assert now(found)[ACCEPTED_TEST] == ("Accepted", "GatePassed", False)
    assert now(found)[REJECTED_TEST] == ("Rejected", "PrimaryNotPassed", False)
    assert {test["changed"] for test in found["tests"]} == {False, None}


def test_a_stricter_policy_would_have_refused_what_was_accepted(life: Life, out: Out) -> None:
    found = replay(life, out, policy(min_effect=9000))
    assert now(found)[ACCEPTED_TEST] == ("Rejected", "PrimaryNotPassed", True)
    assert found["relation"] == "Stricter"
    assert found["differences"] == [{"field": "suite target minEffectBasisPoints", "relation": "Stricter"}]


def test_every_test_of_the_channel_is_listed_and_one_without_evidence_tells_nothing(life: Life, out: Out) -> None:
    found = replay(life, out, policy())
    tests = [thing["metadata"]["name"] for thing in life.things if thing["spec"]["action"] == "Test"]
    assert [test["entry"] for test in found["tests"]] == tests
    assert [test["untold"] for test in found["tests"]][2:] == ["evidence: no verdict rests on any"] * 2
    assert [test["candidate"] for test in found["tests"]] == ["good", "no-better", "unreadable", "deleted"]


def test_what_was_not_measured_cannot_be_told(life: Life, out: Out) -> None:
    wire = policy().wire()
    wire["suites"][0]["items"]["count"] = 61
    found = replay(life, out, GatePolicySpec.parse(wire))
    assert {verdict for verdict, _, _ in now(found).values()} == {None}
    assert found["tests"][0]["untold"] == "suite target items: 60 were measured, 61 are asked for"


def test_without_a_policy_each_test_is_judged_under_its_own(life: Life, out: Out) -> None:
    found = replay(life, out, None)
    assert (found["relation"], now(found)[ACCEPTED_TEST]) == (None, ("Accepted", "GatePassed", False))


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "evidence that was edited": (
        lambda path: (path / "report.json").write_text("{}"),
        "evidence: channel-1/evidence/support-000001/report",
    ),
    "evidence that is gone": (lambda path: shutil.rmtree(path), "evidence: it is gone"),
    "pairs that were edited": (lambda path: (path / "pairs.jsonl.gz").write_bytes(gzip.compress(b"")), "evidence: channel-1/evidence"),
}


@pytest.mark.parametrize("sentence", SPOILT)
def test_nothing_is_told_from(sentence: str, life: Life, out: Out) -> None:
    spoil, untold = SPOILT[sentence]
    spoil(life.evidence(ACCEPTED))
    test = replay(life, out, policy(), status=2)["tests"][0]
    assert test["untold"].startswith(untold)
    assert (test["verdict_now"], test["changed"]) == (None, None)


def test_a_person_reads_a_table_and_what_the_policy_is_to_the_one_in_force(life: Life, out: Out) -> None:
    assert main(["gate", "replay", "support", "--policy", written(life.root, policy(min_effect=9000)), *source(life.root)]) == 0
    text = out()
    assert re.search(rf"{ACCEPTED_TEST} +good +Accepted GatePassed +Rejected PrimaryNotPassed +yes", text)
    assert "cannot be told: evidence: no verdict rests on any" in text
    assert f"the policy with digest {policy(min_effect=9000).digest_of()} is Stricter to the one in force" in text
    assert "4 tests: 1 would have changed, of 2 it cannot be told" in text


def test_why_prints_every_check_of_one_test(life: Life, out: Out) -> None:
    assert main(["gate", "replay", "support", *source(life.root), "--why", REJECTED_TEST]) == 0
    text = out()
    assert text.startswith(f"{REJECTED_TEST} of no-better: Rejected PrimaryNotPassed\n")
    assert "Fail Superiority target: EffectTooSmall n 60 statistic 0.000000000 bound" in text
    assert "The candidate gains 0.00 points on the incumbent over 60 clusters" in text
    wire = replay(life, out, None, "--why", REJECTED_TEST)
    assert {"check", "outcome", "finding", "suite", "statistic", "bound", "n", "sentence"} == set(wire["results"][0])


def test_why_says_when_nothing_can_be_told(life: Life, out: Out) -> None:
    shutil.rmtree(life.evidence(ACCEPTED))
    assert main(["gate", "replay", "support", *source(life.root), "--why", ACCEPTED_TEST]) == 2
    assert out() == "cannot be told: evidence: it is gone\n"


def test_a_log_that_is_broken_is_not_replayed(life: Life, capsys: pytest.CaptureFixture[str]) -> None:
    life.copy(2).write_bytes(life.copy(2).read_bytes().replace(b"every check passed", b"every check p4ssed"))
    assert "kubectl gatevalve verify names everything" in error(capsys, ["gate", "replay", "support", *source(life.root)])


def test_details_are_for_whoever_holds_the_sealed_area(life: Life, out: Out) -> None:
    assert "results" not in replay(life, out, policy())["tests"][0]


# ---- power


def test_a_table_for_the_demo_and_the_condition_that_the_operator_sets(out: Out) -> None:
    demo = str(REPO / "demo" / "manifests" / "policy.yaml")
    assert main(["gate", "power", "--policy", demo, "--items", "regression=600"]) == 0
    text = out()
    assert re.search(r"screen +60 +3 +0.5000 +a gain of 4\.7", text)
    assert re.search(
        r"target +240 +3 +0.0050 +a gain of 9\.7 .* a gain of 6\.8 +a gain of 4\.8 +a gain of 7\.2 +a gain of 5\.6 +planned", text
    )
    assert re.search(r"regression +600 +1 +0.0100 +a loss up to 0\.7 +99\.1%", text)
    assert "Underpowered False: a test sees the minDetectableEffectBasisPoints of 1000 in 80 of 100 cases" in text


def test_a_fixed_file_of_which_nobody_says_the_size_is_not_told(tmp_path: Path, out: Out) -> None:
    assert main(["gate", "power", "--policy", written(tmp_path, policy())]) == 0
    assert "regression: the policy does not count its items: give --items regression=NUMBER" in out()


def power(tmp_path: Path, out: Out, *more: str) -> dict[str, Any]:
    assert main(["gate", "power", "--policy", written(tmp_path, policy()), *more, "--json"]) == 0
    found: dict[str, Any] = json.loads(out())
    return found


def test_a_rate_nearer_to_the_ceiling_sees_smaller_gains(tmp_path: Path, out: Out) -> None:
    worst, high = (power(tmp_path, out, *more)["suites"][0]["effect"] for more in ((), ("--rate", "0.95")))
    assert high < 0.7 * worst


@pytest.mark.parametrize("how", ["by entry", "by directory"])
def test_variances_are_taken_from_evidence(how: str, life: Life, tmp_path: Path, out: Out) -> None:
    named = [REJECTED_TEST, *source(life.root)] if how == "by entry" else [str(life.evidence(5))]
    found = power(tmp_path, out, "--from-evidence", *named)["suites"]
    assert [suite["basis"] for suite in found] == [f"observed in {REJECTED_TEST}"] * 2
    assert [suite["size"]["items"] for suite in found] == [60, 60]
    assert found[0]["effect"] < power(tmp_path, out)["suites"][0]["effect"]


# ---- calibrate


def probed(root: Path) -> Life:
    """A channel whose gate was probed with the incumbent against itself."""
    rules = GatePolicySpec.parse({**policy().wire(), "sentinels": {"everyCandidates": 1}})
    world = AuditedWorld(policy=rules, gain=0.0, signer=signer(root), sealed=root / "sealed")
    world.run()
    world.apply("one")
    world.run()
    life = Life(root, world.signer or signer(root), [release_object(view.spec) for view in world.log])
    life.export()
    return life


def test_the_newest_sentinel_is_calibrated_against_the_policy_in_force(tmp_path: Path, out: Out) -> None:
    probed(tmp_path)
    assert main(["gate", "calibrate", "support", *source(tmp_path)]) == 0
    text = out()
    assert re.search(r"behaviour.maxExcessNegativeFlipBasisPoints +target +0\.0 +0\.0 +0\.0 +at most 500", text)
    assert text.endswith("no limit is tighter than the noise\n")
    assert "note:" not in text


def evidence(directory: Path, spec: GatePolicySpec, rows: list[PairRow], **changes: Any) -> Path:
    """A directory that an evaluation wrote."""
    report = case_of(spec, rows)[0].report
    assert report is not None
    packed = gzip.compress(b"".join(canonical_json(row.wire()) + b"\n" for row in rows), mtime=0)
    fact = FileFact(path="pairs.jsonl.gz", size=len(packed), sha256=sha256(packed))
    told = EvidenceReport(**{**dict(report), "pairs": fact, **changes})
    directory.mkdir()
    (directory / "pairs.jsonl.gz").write_bytes(packed)
    (directory / "report.json").write_bytes(told.canonical())
    return directory


def calibrated(out: Out, directory: Path, spec: GatePolicySpec) -> dict[str, Any]:
    given = ["--policy", written(directory.parent, spec), "--evidence", str(directory)]
    assert main(["gate", "calibrate", *given, "--json"]) == 0
    found: dict[str, Any] = json.loads(out())["tables"][0]
    return found


def test_a_directory_is_calibrated_and_it_is_said_that_its_candidate_is_another(tmp_path: Path, out: Out) -> None:
    directory = evidence(tmp_path / "e", policy_of(), good_rows())
    assert calibrated(out, directory, policy_of())["same"] is False
    assert main(["gate", "calibrate", "--policy", written(tmp_path, policy_of()), "--evidence", str(directory)]) == 0
    assert "note: support-000007 did not measure the incumbent against itself" in out()


def test_evidence_of_the_incumbent_as_candidate_is_known_by_its_digests(tmp_path: Path, out: Out) -> None:
    same = {"candidate_digest": sha256(b"incumbent"), "incumbent_digest": sha256(b"incumbent")}
    directory = evidence(tmp_path / "e", policy_of(), good_rows(), **same)
    assert calibrated(out, directory, policy_of())["same"] is True


def test_limits_tighter_than_the_noise_are_named(tmp_path: Path, out: Out) -> None:
    rows = [*(row for row in good_rows() if row.suite != "manners"), *manners_rows(27)]
    wire = policy_of().wire()
    wire["behaviour"]["lengthRatioPercent"] = {"min": 90, "max": 110}
    directory = evidence(tmp_path / "e", policy_of(), rows)
    assert main(["gate", "calibrate", "--policy", written(tmp_path, wire), "--evidence", str(directory)]) == 0
    assert "tighter than the noise: behaviour.lengthRatioPercent (manners)" in out()


# ---- what cannot be asked


ILL_ASKED: dict[str, tuple[list[str], str]] = {
    "a policy file that is not there": (["power", "--policy", "/nowhere"], "--policy: /nowhere cannot be read"),
    "a file without a policy": (["power", "--policy", "{channel}"], "holds 0 objects of kind GatePolicy"),
    "a file that is no YAML": (["power", "--policy", "{junk}"], "is no YAML"),
    "a policy that breaks its contract": (["power", "--policy", "{broken}"], "spec.suites"),
    "a rate that is no share": (["power", "--policy", "{policy}", "--rate", "90"], "--rate: 90.0 is no share"),
    "a suite that the policy lacks": (
        ["power", "--policy", "{policy}", "--items", "x=600"],
        "--items: the policy has no Primary or Guard suite x",
    ),
    "a number of items that is none": (["power", "--policy", "{policy}", "--items", "regression"], "--items: regression names no number"),
    "evidence that is neither": (["power", "--policy", "{policy}", "--from-evidence", "x"], "--from-evidence: x is neither a directory"),
    "a directory without evidence": (["power", "--policy", "{policy}", "--from-evidence", "{empty}"], "holds no evidence"),
    "an entry that is no test": (["power", "--policy", "{policy}", "--from-evidence", "support-000000", "{source}"], "no verdict rests on"),
    "a test that does not exist": (["replay", "support", "{source}", "--why", "support-000000"], "--why: support-000000 is no Test entry"),
    "no sealed area": (["replay", "support", "{source}", "--sealed", "/nowhere"], "--sealed: /nowhere is no directory"),
    "a channel of which nothing is at hand": (["replay", "other", "{source}"], "nothing at hand is of channel other"),
    "neither channel nor evidence": (["calibrate"], "channel: neither a channel nor evidence is named"),
    "a channel without sentinels": (["calibrate", "support", "{source}"], "its log holds no sentinel"),
    "evidence without a policy": (["calibrate", "--evidence", "{evidence}"], "--policy: no policy is at hand"),
    "evidence that is gone": (["calibrate", "--policy", "{policy}", "--evidence", "/nowhere"], "--evidence: /nowhere is no directory"),
    "evidence of other suites": (
        ["calibrate", "--policy", "{other}", "--evidence", "{evidence}"],
        "holds no answers to the policy's suites",
    ),
}


@pytest.mark.parametrize("sentence", ILL_ASKED)
def test_it_ends_with_two_and_one_sentence_for(sentence: str, life: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv, complaint = ILL_ASKED[sentence]
    (tmp_path / "junk").write_text("a: [")
    (tmp_path / "broken").write_text(f"apiVersion: {API_VERSION}\nkind: GatePolicy\nspec: {{suites: []}}\n")
    (tmp_path / "empty").mkdir()
    other = policy().wire()
    other["suites"] = [{**suite, "name": f"other-{suite['name']}"} for suite in other["suites"]]
    (tmp_path / "other").mkdir()
    places = {
        "{channel}": [str(REPO / "demo" / "manifests" / "channel.yaml")],
        "{junk}": [str(tmp_path / "junk")],
        "{broken}": [str(tmp_path / "broken")],
        "{policy}": [written(tmp_path, policy())],
        "{other}": [written(tmp_path / "other", other)],
        "{empty}": [str(tmp_path / "empty")],
        "{evidence}": [str(life.evidence(ACCEPTED))],
        "{source}": source(life.root),
    }
    said = error(capsys, ["gate", *(part for word in argv for part in places.get(word, [word]))])
    assert complaint in said
    assert said.count("\n") == 1


# ---- the page


def shown() -> list[str]:
    """Every command of the page's section."""
    page = (REPO / "docs" / "operations.md").read_text()
    section = page.split("## Before you change a policy")[1].split("\n## ")[0]
    return re.findall(r"^\$ kubectl gatevalve (gate .*)$", section, re.MULTILINE)


@pytest.mark.parametrize("command", shown())
def test_every_command_that_the_page_shows_runs(command: str, tmp_path: Path, out: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    life = probed(tmp_path)
    written(tmp_path, GatePolicySpec.parse({**policy().wire(), "sentinels": {"everyCandidates": 1}}))
    monkeypatch.chdir(tmp_path)
    words = [
        {"/mnt/log": str(life.root / "log"), "/mnt/sealed": str(life.root / "sealed")}.get(word, word) for word in shlex.split(command)
    ]
    offline = [] if words[1] == "power" and "--from-evidence" not in words else source(tmp_path)[:3]
    assert main([*words, *offline]) == 0
    assert out()


def test_the_page_shows_every_command() -> None:
    assert {command.split()[1] for command in shown()} == {"replay", "power", "calibrate"}
