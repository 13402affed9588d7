"""`kubectl gatevalve verify`: what it says of a log, its external copies and its evidence, with and without an API server."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gatevalve.cli.main import main, told
from gatevalve.cli.verify import Question, Verification, verify
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.kinds import AdapterReleaseSpec, ChannelRef
from gatevalve.contracts.names import log_file
from gatevalve.contracts.reasons import Action, EntryReason, Verdict
from gatevalve.engine.chain import copy_of
from gatevalve.io.store import REPORT_BYTES
from support.audited import ACCEPTED, ACTIONS, NOT_BETTER, UNREADABLE, Life
from support.engine_world import release_object, signer

ENTRIES = len(ACTIONS)


def ask(life: Life, **changes: Any) -> Verification:
    whole = Question("support", life.things, [life.certificate], None, life.root / "log", life.root / "sealed")
    return asyncio.run(verify(replace(whole, **changes)))


def test_a_sound_log_is_compared_and_its_verdicts_are_judged_anew(life: Life) -> None:
    found = ask(life)
    assert (found.problems, found.unread, found.lost) == ((), (), ())
    assert (found.entries, found.compared, found.judged) == (ENTRIES, ENTRIES, 2)
    assert "2 verdicts judged anew" in told(found)[0]


def test_without_directories_it_says_what_it_did_not_look_at(life: Life) -> None:
    (line,) = told(ask(life, log_dir=None, sealed_dir=None))
    assert line.endswith("not compared with the external log; verdicts not judged anew")


def test_the_external_log_alone_is_enough(life: Life) -> None:
    found = ask(life, things=None)
    assert (found.problems, found.entries, found.judged) == ((), ENTRIES, 2)


def test_a_key_that_the_reader_does_not_trust_is_refused(life: Life) -> None:
    assert "no certificate at hand" in ask(life, expected_key="sha256:" + "0" * 64).problems[0]


def test_a_certificate_of_another_key_is_refused(life: Life) -> None:
    signer(life.root, "other")
    other = (life.root / "signing-other" / "tls.crt").read_bytes()
    assert "no certificate at hand" in ask(life, certificates=[other]).problems[0]


def test_a_channel_of_which_nothing_is_at_hand_cannot_be_asked_about(life: Life) -> None:
    with pytest.raises(ContractError, match="nothing at hand"):
        ask(life, channel="nobody", things=None)


@pytest.mark.parametrize("name", ["log_dir", "sealed_dir"])
def test_a_directory_that_does_not_exist_is_refused(name: str, life: Life) -> None:
    with pytest.raises(ContractError, match="is no directory"):
        ask(life, **{name: life.root / "nowhere"})


# ---- what somebody did to the log


def _edit(life: Life) -> None:
    life.things[2]["spec"]["message"] = "edited"


def _edit_two(life: Life) -> None:
    life.things[2]["spec"]["message"] = life.things[4]["spec"]["message"] = "edited"


def _delete(life: Life) -> None:
    del life.things[3]


def _delete_head(life: Life) -> None:
    del life.things[-1]


def _delete_all(life: Life) -> None:
    life.things.clear()


def _rename(life: Life) -> None:
    life.copy(1).rename(life.copy(1).with_name("1.json"))


def _superscript(life: Life) -> None:
    life.copy(1).with_name("00000².json").write_bytes(b"{}")


def _truncate(life: Life) -> None:
    life.copy(1).write_bytes(life.copy(1).read_bytes()[:-20])


def _empty(life: Life) -> None:
    life.copy(1).write_bytes(b"")


def _huge(life: Life) -> None:
    with life.copy(1).open("wb") as stream:
        stream.truncate(REPORT_BYTES * 1000)


def _nested(life: Life) -> None:
    life.copy(1).write_bytes(b'{"a":' * 100_000)


def _link(life: Life) -> None:
    life.copy(1).rename(life.root / "elsewhere")
    life.copy(1).symlink_to(life.root / "elsewhere")


def _pipe(life: Life) -> None:
    life.copy(1).unlink()
    os.mkfifo(life.copy(1))


def _directory(life: Life) -> None:
    life.copy(1).unlink()
    life.copy(1).mkdir()


def _extra(life: Life) -> None:
    (life.root / "log" / log_file(life.uid, ENTRIES)).write_bytes(b"{}")


def _pretty(life: Life) -> None:
    life.copy(1).write_text(json.dumps(life.things[1]["spec"], indent=1))


DONE: dict[str, tuple[Callable[[Life], None], list[str], list[str]]] = {
    "an entry was edited": (
        _edit,
        ["support-000002: its digest is", "the external log's channel-1/000002.json differs"],
        [],
    ),
    "two entries were edited": (
        _edit_two,
        ["support-000002: its digest is", "support-000004: its digest is", "000002.json differs", "000004.json differs"],
        [],
    ),
    "an entry is gone": (_delete, ["support-000003 is missing, but support-000004 exists", "000003.json differs"], []),
    "the newest entry is gone": (_delete_head, ["000011.json, which is beyond the API server's log of 11 entries"], []),
    "a copy is gone": (lambda life: life.copy(1).unlink(), ["lacks channel-1/000001.json"], ["support-000001 is missing"]),
    "a copy was renamed": (
        _rename,
        ["holds channel-1/1.json, which is no entry's name", "lacks channel-1/000001.json"],
        ["holds channel-1/1.json", "support-000001 is missing"],
    ),
    "a file has a name that looks like a number": (_superscript, ["00000².json, which is no entry's name"], ["00000².json"]),
    "a copy was cut": (_truncate, ["000001.json differs"], ["000001.json is no exact copy", "support-000001 is missing"]),
    "a copy is empty": (_empty, ["000001.json differs"], ["000001.json is no exact copy", "support-000001 is missing"]),
    "a copy is huge": (_huge, ["000001.json is no entry's copy: "], ["is longer than", "support-000001 is missing"]),
    "a copy is nested without end": (_nested, ["000001.json differs"], ["000001.json is no exact copy", "support-000001 is missing"]),
    "a copy is a link": (_link, ["is a link"], ["is a link", "support-000001 is missing"]),
    "a copy is a pipe": (_pipe, ["is no plain file"], ["is no plain file", "support-000001 is missing"]),
    "a copy is a directory": (_directory, ["is no plain file"], ["is no plain file", "support-000001 is missing"]),
    "a copy was written anew in other bytes": (_pretty, ["000001.json differs"], ["000001.json is no exact", "support-000001 is missing"]),
    "the external log has grown": (_extra, ["beyond the API server's log of 12 entries"], ["support-000012: "]),
}


def tells(problems: tuple[str, ...], complaints: list[str]) -> bool:
    """Each complaint is told in one problem, and nothing else is."""
    return len(problems) == len(complaints) and all(any(complaint in problem for problem in problems) for complaint in complaints)


@pytest.mark.parametrize("sentence", DONE)
def test_every_problem_is_told_when(sentence: str, life: Life) -> None:
    spoil, complaints, _ = DONE[sentence]
    spoil(life)
    problems = ask(life, sealed_dir=None).problems
    assert tells(problems, complaints), problems


@pytest.mark.parametrize("sentence", [sentence for sentence in DONE if DONE[sentence][2]])
def test_every_problem_is_told_offline_when(sentence: str, life: Life) -> None:
    spoil, _, complaints = DONE[sentence]
    spoil(life)
    problems = ask(life, things=None, sealed_dir=None).problems
    assert tells(problems, complaints), problems


def test_a_log_deleted_from_the_api_server_is_found_in_its_external_copies(life: Life) -> None:
    _delete_all(life)
    problems = ask(life).problems
    assert "there is no entry to verify" in problems[0]
    assert len([problem for problem in problems if "beyond the API server's log of 0 entries" in problem]) == ENTRIES


def test_what_a_killed_operator_left_half_written_is_no_problem(life: Life) -> None:
    life.copy(1).with_name(".000012.json.abc").write_bytes(b"half")
    assert ask(life).problems == ()


def test_two_logs_of_one_name_are_told_apart(life: Life) -> None:
    again = life.key.seal(
        life.specs[0].model_copy(update={"channel": ChannelRef(name="support", uid="b"), "digest": None, "signature": None}), None
    )
    path = life.root / "log" / "b" / "000000.json"
    path.parent.mkdir()
    path.write_bytes(copy_of(release_object(again)["spec"]))
    assert "holds support-000000 under uid b and channel-1" in " ".join(ask(life, things=None).problems)


def test_another_channels_copies_are_left_alone(life: Life) -> None:
    path = life.root / "log" / "b" / "000000.json"
    path.parent.mkdir()
    path.write_text('{"channel": {"name": "other", "uid": "b"}}')
    assert ask(life).problems == ()
    assert ask(life, things=None).problems == ()


def test_an_entry_that_no_decision_could_have_written_is_told_although_it_is_signed(life: Life) -> None:
    life.resign(3, lambda spec: spec.model_copy(update={"candidate": None}))
    assert ask(life, sealed_dir=None).problems == ("support-000003: it promotes what was never accepted",)


# ---- evidence and verdicts


def _accept(spec: AdapterReleaseSpec) -> AdapterReleaseSpec:
    """The pin of the story: a Reject turned into an Accept by somebody who holds the key."""
    gate = spec.gate.model_copy(update={"effect_basis_points": 4000}) if spec.gate else None
    changes = {"action": Action.ACCEPT, "verdict": Verdict.ACCEPTED, "reason": EntryReason.GATE_PASSED, "gate": gate}
    return spec.model_copy(update=changes)


def _effect(spec: AdapterReleaseSpec) -> AdapterReleaseSpec:
    return spec.model_copy(update={"gate": spec.gate and spec.gate.model_copy(update={"effect_basis_points": 9000})})


def _swap(life: Life) -> None:
    one, other = life.evidence(ACCEPTED), life.evidence(NOT_BETTER)
    one.rename(life.root / "x")
    other.rename(one)
    (life.root / "x").rename(other)


def _pairs(life: Life) -> None:
    pairs = life.evidence(ACCEPTED) / "pairs.jsonl.gz"
    pairs.write_bytes(gzip.compress(gzip.decompress(pairs.read_bytes()).replace(b"1000000", b"0000000", 1)))


def _report(life: Life) -> None:
    report = life.evidence(ACCEPTED) / "report.json"
    report.write_bytes(report.read_bytes() + b" ")


EVIDENCE: dict[str, tuple[Callable[[Life], None], str]] = {
    "a pair was edited": (_pairs, "support-000002 rests on evidence that is not what it was: channel-1/evidence/support-000001/pairs"),
    "a report was edited": (_report, "support-000002 rests on evidence that is not what it was: channel-1/evidence/support-000001/report"),
    "an Accept's evidence is gone": (lambda life: shutil.rmtree(life.evidence(ACCEPTED)), "support-000002 rests on evidence that is gone"),
    "a Reject's evidence is gone": (lambda life: shutil.rmtree(life.evidence(NOT_BETTER)), "support-000005 rests on evidence that is gone"),
    "pairs are gone": (lambda life: (life.evidence(ACCEPTED) / "pairs.jsonl.gz").unlink(), "support-000002 rests on evidence that is gone"),
    "evidence was swapped": (_swap, "support-000002 rests on evidence that is not what it was"),
    "a Reject was signed anew as an Accept": (
        lambda life: life.resign(NOT_BETTER, _accept),
        "support-000005 says Accepted (GatePassed), but its evidence gives Rejected (PrimaryNotPassed)",
    ),
    "an Accept's effect was signed anew": (
        lambda life: life.resign(ACCEPTED, _effect),
        "support-000002 states an effect of 9000 basis points, but its evidence gives 4000",
    ),
    "a Reject was signed anew with another reason": (
        lambda life: life.resign(NOT_BETTER, lambda spec: spec.model_copy(update={"reason": EntryReason.BELOW_FLOOR})),
        "support-000005 says Rejected (BelowFloor)",
    ),
    "a Reject was signed anew with another message": (
        lambda life: life.resign(NOT_BETTER, lambda spec: spec.model_copy(update={"message": "too ugly"})),
        "support-000005 gives another reason than its evidence",
    ),
}


@pytest.mark.parametrize("sentence", EVIDENCE)
def test_a_verdict_does_not_hold_when(sentence: str, life: Life) -> None:
    spoil, complaint = EVIDENCE[sentence]
    spoil(life)
    assert complaint in " ".join(ask(life).problems)


def test_another_operator_version_may_word_a_message_otherwise(life: Life) -> None:
    life.resign(NOT_BETTER, lambda spec: spec.model_copy(update={"message": "in other words", "operator_version": "0.0.9"}))
    assert ask(life).problems == ()


def test_evidence_that_could_not_be_read_when_it_was_judged_may_look_like_anything_now(life: Life) -> None:
    shutil.rmtree(life.evidence(UNREADABLE))
    assert ask(life).problems == ()


def test_evidence_from_before_an_adoption_may_be_lost_but_not_edited(life: Life) -> None:
    opening = life.specs[0].opening
    assert opening is not None
    adopted = life.specs[0].model_copy(
        update={
            "sequence": ENTRIES,
            "channel": ChannelRef(name="support", uid="new"),
            "opening": opening.model_copy(update={"adopted_uid": life.uid}),
        }
    )
    life.sign([*life.specs, adopted])
    shutil.rmtree(life.evidence(ACCEPTED))
    found = ask(life)
    assert (found.problems, len(found.lost)) == ((), 1)
    assert told(found)[0] == "note: the evidence of support-000001 is gone, and the log was adopted since"
    life.evidence(NOT_BETTER).joinpath("report.json").write_text("{}")
    assert "support-000005 rests on evidence that is not what it was" in ask(life).problems[0]


# ---- the command


def test_the_command_needs_no_cluster_with_certificate_and_external_log(life: Life, capsys: pytest.CaptureFixture[str]) -> None:
    certificate = life.root / "signing-operator" / "tls.crt"
    base = ["verify", "support", "--offline", "--certificate", str(certificate), "--kubeconfig", "/nowhere"]
    files = ["--log", str(life.root / "log"), "--sealed", str(life.root / "sealed")]
    assert main([*base, *files]) == 0
    assert capsys.readouterr().out.startswith("sound: 12 entries, gapless, chained, signed by sha256:")
    assert main([*base, *files, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sound"] is True
    _truncate(life)
    assert main([*base, *files]) == 1
    assert "NOT SOUND: the external log's channel-1/000001.json is no exact copy of an entry" in capsys.readouterr().out


ILL_ASKED = {
    "offline without an external log": ["--offline"],
    "a certificate that is not there": ["--offline", "--log", ".", "--certificate", "/nowhere"],
    "no kubeconfig": ["--kubeconfig", "/nowhere"],
}


@pytest.mark.parametrize("sentence", ILL_ASKED)
def test_what_cannot_be_asked_ends_with_two_and_one_sentence(sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "support", *ILL_ASKED[sentence]]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_an_api_server_that_does_not_answer_ends_with_two_and_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    certificate = signer(tmp_path).verify_key.certificate
    (tmp_path / "tls.crt").write_bytes(certificate)
    for more in ([], ["--certificate", str(tmp_path / "tls.crt")]):
        assert main(["verify", "support", "--kubeconfig", str(tmp_path / "config"), *more]) == 2
        assert "does not answer" in capsys.readouterr().err


MISTAKEN: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    "the sealed area as the log": (lambda root: ["--log", f"{root}/sealed"], "--log: {root}/sealed is a sealed area"),
    "one channel's part of the log": (
        lambda root: ["--log", f"{root}/log/channel-1"],
        "--log: {root}/log/channel-1 is the part of one channel",
    ),
    "the log as the sealed area": (lambda root: ["--log", f"{root}/log", "--sealed", f"{root}/log"], "--sealed: {root}/log is a log area"),
    "one channel's part of the sealed area": (
        lambda root: ["--log", f"{root}/log", "--sealed", f"{root}/sealed/channel-1"],
        "--sealed: {root}/sealed/channel-1 is the part of one channel",
    ),
    "a log that is not there": (lambda root: ["--log", "/nowhere"], "--log: /nowhere is no directory; give the root of the log area"),
    "half a digest": (lambda root: ["--log", f"{root}/log", "--key-sha256", "sha256:abc"], "--key-sha256: sha256:abc is no digest"),
    "no certificate": (
        lambda root: ["--log", f"{root}/log", "--certificate", f"{root}/log/channel-1/000000.json"],
        "--certificate: {root}/log/channel-1/000000.json: tls.crt: is not a PEM certificate",
    ),
}


@pytest.mark.parametrize("sentence", MISTAKEN)
def test_a_mistaken_option_is_named_and_is_no_finding_about_the_log(sentence: str, life: Life, capsys: pytest.CaptureFixture[str]) -> None:
    options, says = MISTAKEN[sentence]
    certificate = ["--certificate", str(life.root / "signing-operator/tls.crt")]
    assert main(["verify", "support", "--offline", *certificate, *options(life.root)]) == 2
    told = capsys.readouterr()
    assert told.err.startswith("error: " + says.format(root=life.root))
    assert told.out == ""


def test_folders_that_belong_to_no_channel_are_passed_over(life: Life) -> None:
    (life.root / "log/lost+found").mkdir(mode=0)
    (life.root / "sealed/notes").mkdir()
    assert ask(life).problems == ()
