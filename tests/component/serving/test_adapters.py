"""From a signed document to a served adapter, and back: the middleware around a scripted engine."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gatevalve.contracts.names import ADAPTER_WEIGHTS
from gatevalve.contracts.serving import AdapterOnPod, PodReport
from gatevalve_serving import adapters
from gatevalve_serving.fetch import fetch, local_path
from gatevalve_serving.fit import check_fit
from support.serving import QUICK, PodRig, RunningPod, lora_config, lora_tensors, publish, scripted_probes, write_peft

pytestmark = pytest.mark.component


def states(report: PodReport) -> dict[str, str]:
    return {adapter.name: adapter.state.value for adapter in report.adapters}


def local_copies(rig: PodRig) -> list[str]:
    """Digests of the adapters on the pod's own disk."""
    return sorted(path.name.partition("-")[0] for path in (rig.root / "cache" / "adapters").iterdir())


async def entry_answering(pod: RunningPod) -> str:
    answer = await pod.chat()
    assert answer.status == 200, answer.body
    return answer.headers["x-gatevalve-release"]


async def test_a_document_ends_in_a_verified_adapter_behind_the_alias(rig: PodRig) -> None:
    adapter = rig.adapter(1)
    async with rig.running() as pod:
        answer = await pod.put(rig.signed((1, 0), (adapter,), adapter))
        assert (answer.status, answer.report.committed) == (202, False)
        report = await pod.settled(rig.signed((1, 0), (adapter,), adapter))
        assert await entry_answering(pod) == "support-000001"
    assert states(report) == {adapter.name: "Verified"}
    assert (report.revision, report.boot, report.base_digest) == ((1, 0), report.boot, rig.base_digest)
    assert report.document_digest == rig.document((1, 0), (adapter,), adapter).digest_of()
    assert rig.engine.adapters == {adapter.name: str(local_path(rig.root / "cache" / "adapters", "support", adapter))}


async def test_before_the_first_release_the_alias_answers_from_the_base(rig: PodRig) -> None:
    async with rig.running() as pod:
        await pod.settled(rig.signed((0, 0)))
        reply = await pod.chat()
    assert (reply.headers["x-gatevalve-release"], reply.json["model"]) == ("support-000000", "support")
    assert rig.engine.asked[-1]["model"] == "tiny"


async def test_a_preloaded_adapter_is_verified_and_gets_no_traffic(rig: PodRig) -> None:
    live, new = rig.adapter(1), rig.adapter(2)
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (live,), live))
        report = await pod.settled(rig.signed((1, 1), (live, new), live))
        await pod.chat()
    assert states(report) == {live.name: "Verified", new.name: "Verified"}
    assert rig.engine.asked[-1]["model"] == live.name


async def test_a_pushed_flip_to_a_verified_adapter_is_in_force_when_the_push_is_answered(rig: PodRig) -> None:
    live, new = rig.adapter(1), rig.adapter(2)
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (live, new), live))
        answer = await pod.put(rig.signed((2, 0), (live, new), new))
        assert (answer.status, answer.report.committed, answer.report.routes[0].adapter) == (202, True, new.name)
        assert await entry_answering(pod) == "support-000002"


Change = Callable[[Path], object]


def flip_a_byte(path: Path) -> None:
    raw = bytearray((path / ADAPTER_WEIGHTS).read_bytes())
    raw[-1] ^= 1
    (path / ADAPTER_WEIGHTS).write_bytes(raw)


def with_nan() -> dict[str, Any]:
    tensors = lora_tensors(9)
    next(iter(tensors.values()))[0, 0] = np.nan
    return tensors


def good_weights(rig: PodRig) -> bytes:
    path = rig.root / "good-peft"
    if not path.exists():
        write_peft(path, lora_tensors(9), lora_config())
    return (path / ADAPTER_WEIGHTS).read_bytes()


def with_weights(rig: PodRig, name: str, raw: bytes) -> AdapterOnPod:
    """An adapter whose digest is right and whose weights file holds anything."""
    path = rig.root / "peft" / name
    write_peft(path, lora_tensors(9), lora_config())
    (path / ADAPTER_WEIGHTS).write_bytes(raw)
    return publish(rig.data, path, rig.base_digest, scripted_probes(path))


def piped(rig: PodRig) -> AdapterOnPod:
    adapter = rig.adapter(9)
    weights = rig.data / adapter.uri / ADAPTER_WEIGHTS
    weights.unlink()
    os.mkfifo(weights)
    return adapter


BAD: dict[str, tuple[Callable[[PodRig], AdapterOnPod], str]] = {
    "is missing": (
        lambda rig: rig.adapter(9).model_copy(update={"uri": "nobody/adapters/" + "0" * 64, "digest": "sha256:" + "0" * 64}),
        "AdapterMissing",
    ),
    "has a NaN": (lambda rig: rig.odd_adapter("nan", with_nan(), lora_config()), "AdapterUnsupported"),
    "is for a smaller base": (lambda rig: rig.odd_adapter("small", lora_tensors(9, hidden=4), lora_config()), "AdapterUnsupported"),
    "is DoRA": (lambda rig: rig.odd_adapter("dora", lora_tensors(9), lora_config(use_dora=True)), "AdapterUnsupported"),
    "has too high a rank": (
        lambda rig: rig.odd_adapter("rank", lora_tensors(9, rank=32), lora_config(rank=32), rank=32),
        "AdapterUnsupported",
    ),
    "is for a larger base": (lambda rig: rig.odd_adapter("large", lora_tensors(9, hidden=16), lora_config()), "AdapterUnsupported"),
    "has more layers": (lambda rig: rig.odd_adapter("deep", lora_tensors(9, layers=3), lora_config()), "AdapterUnsupported"),
    "has fewer layers": (lambda rig: rig.odd_adapter("flat", lora_tensors(9, layers=1), lora_config()), "AdapterUnsupported"),
    "brings modules of its own": (
        lambda rig: rig.odd_adapter("modules", lora_tensors(9), lora_config(modules_to_save=["lm_head"])),
        "AdapterUnsupported",
    ),
    "is a pickle": (lambda rig: with_weights(rig, "pickle", pickle.dumps({"lora": 1})), "AdapterUnsupported"),
    "is cut short": (lambda rig: with_weights(rig, "short", good_weights(rig)[:-100]), "AdapterUnsupported"),
    "claims a header of a terabyte": (lambda rig: with_weights(rig, "header", (1 << 40).to_bytes(8, "little")), "AdapterUnsupported"),
    "has bytes behind its tensors": (lambda rig: with_weights(rig, "tail", good_weights(rig) + bytes(64)), "AdapterUnsupported"),
    "is a pipe that nobody writes": (piped, "AdapterUnsupported"),
    "is for another base": (
        lambda rig: rig.odd_adapter("base", lora_tensors(9), lora_config(), base_digest="sha256:" + "9" * 64),
        "BaseMismatch",
    ),
}


@pytest.mark.parametrize(("make", "reason"), BAD.values(), ids=[f"an adapter that {name}" for name in BAD])
async def test_a_bad_adapter_fails_with_its_reason_before_the_engine_sees_it(
    rig: PodRig, make: Callable[[PodRig], AdapterOnPod], reason: str
) -> None:
    live, bad = rig.adapter(1), make(rig)
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (live,), live))
        await pod.put(rig.signed((2, 0), (live, bad), bad))
        report = await pod.until(lambda report: states(report).get(bad.name) == "Failed")
        assert await entry_answering(pod) == "support-000001"
    assert {adapter.name: adapter.reason for adapter in report.adapters} == {live.name: None, bad.name: reason}
    assert (report.committed, report.reason, report.routes[0].entry) == (False, reason, "support-000001")
    assert rig.engine.log == [f"load {live.name}"]


async def test_flipped_bytes_in_the_store_are_a_digest_mismatch(rig: PodRig) -> None:
    adapter = rig.adapter(1)
    flip_a_byte(rig.data / adapter.uri)
    async with rig.running() as pod:
        await pod.put(rig.signed((1, 0), (adapter,), adapter))
        report = await pod.until(lambda report: states(report) == {adapter.name: "Failed"})
    assert report.adapters[0].reason == "DigestMismatch"


async def test_bytes_swapped_in_the_store_after_the_check_never_reach_the_engine(rig: PodRig, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = rig.adapter(1)
    verified = (rig.data / adapter.uri / ADAPTER_WEIGHTS).read_bytes()

    def fit_then_swap(*arguments: Any) -> None:
        check_fit(*arguments)
        flip_a_byte(rig.data / adapter.uri)

    monkeypatch.setattr(adapters, "check_fit", fit_then_swap)
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (adapter,), adapter))
        assert (Path(rig.engine.adapters[adapter.name]) / ADAPTER_WEIGHTS).read_bytes() == verified


async def test_a_restarted_process_verifies_its_local_copy_again_and_mends_it_from_the_store(rig: PodRig) -> None:
    adapter = rig.adapter(1)
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (adapter,), adapter))
    verified = (rig.data / adapter.uri / ADAPTER_WEIGHTS).read_bytes()
    flip_a_byte(Path(rig.engine.adapters[adapter.name]))
    rig.engine.adapters.clear()
    async with rig.running() as pod:
        await pod.until(lambda report: report.committed)
        assert (Path(rig.engine.adapters[adapter.name]) / ADAPTER_WEIGHTS).read_bytes() == verified


async def test_a_restarted_process_serves_nothing_where_copy_and_store_were_both_swapped(rig: PodRig) -> None:
    adapter = rig.adapter(1)
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (adapter,), adapter))
    flip_a_byte(rig.data / adapter.uri)
    flip_a_byte(Path(rig.engine.adapters[adapter.name]))
    rig.engine.adapters.clear()
    async with rig.running() as pod:
        report = await pod.until(lambda report: states(report) == {adapter.name: "Failed"})
        assert (report.committed, report.reason, (await pod.chat()).status) == (False, "DigestMismatch", 503)
        assert (await pod.ask("GET", "/gatevalve/readyz")).status == 503
    assert rig.engine.adapters == {}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"load_status": 500}, "LoadFailed"),
        ({"raise_on_models": True}, "LoadFailed"),
        ({"mute_probes": True}, "ProbeFailed"),
        ({"without_effect": None}, "ProbeFailed"),
    ],
    ids=["refuses the load", "breaks", "does not answer the probe", "loads it without effect, and says 200"],
)
async def test_an_engine_that_does_not_do_its_part_fails_the_adapter_and_a_mended_one_verifies_it(
    rig: PodRig, fault: dict[str, Any], reason: str
) -> None:
    adapter = rig.adapter(1)
    good = vars(rig.engine.script).copy()
    for name, value in fault.items():
        setattr(rig.engine.script, name, {adapter.name} if value is None else value)
    async with rig.running() as pod:
        await pod.put(rig.signed((1, 0), (adapter,), adapter))
        report = await pod.until(lambda report: states(report) == {adapter.name: "Failed"})
        assert report.adapters[0].reason == reason
        vars(rig.engine.script).update(good)
        await pod.until(lambda report: report.committed and states(report) == {adapter.name: "Verified"})


async def test_a_store_that_comes_back_is_tried_again(rig: PodRig) -> None:
    adapter = rig.adapter(1)
    (rig.data / adapter.uri).rename(rig.root / "away")
    async with rig.running() as pod:
        await pod.put(rig.signed((1, 0), (adapter,), adapter))
        await pod.until(lambda report: states(report) == {adapter.name: "Failed"})
        (rig.root / "away").rename(rig.data / adapter.uri)
        await pod.until(lambda report: report.committed)


async def test_the_next_document_does_not_wait_for_the_next_attempt(tmp_path: Path) -> None:
    rig = PodRig(tmp_path, timing=replace(QUICK, retry_first=60, retry_longest=60))
    adapter = rig.adapter(1)
    rig.engine.script.load_status = 500
    async with rig.running() as pod:
        await pod.put(rig.signed((1, 0), (adapter,), adapter))
        await pod.until(lambda report: states(report) == {adapter.name: "Failed"})
        rig.engine.script.load_status = 200
        await pod.settled(rig.signed((1, 1), (adapter,), adapter))


async def test_without_runtime_loading_the_reason_names_the_remedy(rig: PodRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING")
    adapter = rig.adapter(1)
    async with rig.running() as pod:
        await pod.put(rig.signed((1, 0), (adapter,), adapter))
        report = await pod.until(lambda report: states(report) == {adapter.name: "Failed"})
    assert (report.limits.runtime_lora, report.adapters[0].reason) == (False, "RuntimeLoRADisabled")
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING" in (report.adapters[0].message or "")


async def test_one_adapter_more_than_the_engine_holds_is_refused_until_a_place_is_free(tmp_path: Path) -> None:
    rig = PodRig(tmp_path, max_cpu_loras=2)
    one, two, three = (rig.adapter(seed) for seed in (1, 2, 3))
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (one, two), one))
        await pod.put(rig.signed((1, 1), (one, two, three), one))
        report = await pod.until(lambda report: states(report).get(three.name) == "Failed")
        assert {adapter.name: adapter.reason for adapter in report.adapters}[three.name] == "CapacityExceeded"
        await pod.put(rig.signed((1, 2), (one, three), one))
        await pod.until(lambda report: states(report) == {one.name: "Verified", three.name: "Verified"})


async def test_a_stream_that_began_before_the_flip_ends_on_its_adapter_which_is_unloaded_after_it_and_its_files_last(rig: PodRig) -> None:
    old, new = rig.adapter(1), rig.adapter(2)
    rig.engine.script.step_seconds = 0.02
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (old, new), old))
        stream = asyncio.create_task(pod.chat(stream=True, max_tokens=30, return_token_ids=True))
        await pod.until(lambda report: any(adapter.in_flight for adapter in report.adapters))
        await pod.put(rig.signed((2, 0), (new,), new))
        assert await entry_answering(pod) == "support-000002"
        assert states(await pod.report())[old.name] == "Draining"
        assert old.name in rig.engine.adapters
        answer = await stream
        report = await pod.until(lambda report: old.name not in states(report))
    first = answer.events[1]["choices"][0]["token_ids"][0]
    tokens = [event["choices"][0]["token_ids"][0] for event in answer.events[1:]]
    assert answer.headers["x-gatevalve-release"] == "support-000001"
    assert tokens == [(first + step) % 32 for step in range(30)]
    assert states(report) == {new.name: "Verified"}
    assert rig.engine.log[-1] == f"unload {old.name} with its files there"
    assert local_copies(rig) == [new.digest.removeprefix("sha256:")]


async def test_after_drain_seconds_the_name_goes_and_the_files_wait_for_the_last_request(rig: PodRig) -> None:
    old, new = rig.adapter(1), rig.adapter(2)
    rig.engine.script.step_seconds = 0.05
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (old, new), old))
        stream = asyncio.create_task(pod.chat(stream=True, max_tokens=30))
        await pod.until(lambda report: any(adapter.in_flight for adapter in report.adapters))
        await pod.put(rig.signed((2, 0), (new,), new, drain_seconds=0))
        await pod.until(lambda report: old.name not in rig.engine.adapters)
        assert not stream.done()
        assert old.digest.removeprefix("sha256:") in local_copies(rig)
        assert len((await stream).events) == 31
        await pod.until(lambda report: old.name not in states(report))
    assert local_copies(rig) == [new.digest.removeprefix("sha256:")]


async def test_an_adapter_wanted_again_while_it_drains_stays_loaded(rig: PodRig) -> None:
    old, new = rig.adapter(1), rig.adapter(2)
    rig.engine.script.step_seconds = 0.02
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (old, new), old))
        stream = asyncio.create_task(pod.chat(stream=True, max_tokens=30))
        await pod.until(lambda report: any(adapter.in_flight for adapter in report.adapters))
        await pod.put(rig.signed((2, 0), (new,), new))
        await pod.until(lambda report: states(report)[old.name] == "Draining")
        await pod.settled(rig.signed((3, 0), (old, new), old))
        await stream
    assert [line for line in rig.engine.log if old.name in line] == [f"load {old.name}"]


async def test_an_unload_that_fails_is_tried_again_and_the_files_stay_until_it_worked(rig: PodRig) -> None:
    old, new = rig.adapter(1), rig.adapter(2)
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (old, new), old))
        rig.engine.script.unload_status = 500
        await pod.put(rig.signed((2, 0), (new,), new))
        while sum(line.startswith("unload") for line in rig.engine.log) < 2:  # noqa: ASYNC110 -- the engine's log has no event
            await asyncio.sleep(0.01)
        rig.engine.script.unload_status = 200
        await pod.until(lambda report: old.name not in states(report))
    assert {line for line in rig.engine.log if line.startswith("unload")} == {f"unload {old.name} with its files there"}


async def test_a_way_back_does_not_wait_for_a_load_that_hangs(rig: PodRig) -> None:
    warm, live, slow = rig.adapter(1), rig.adapter(2), rig.adapter(3)
    async with rig.running() as pod:
        await pod.settled(rig.signed((2, 0), (live, warm), live))
        rig.engine.script.load_hangs = True
        await pod.put(rig.signed((2, 1), (live, warm, slow), live))
        await pod.until(lambda report: states(report).get(slow.name) == "Loading")
        answer = await pod.put(rig.signed((3, 0), (warm, live), warm))
        assert answer.report.committed
        assert await entry_answering(pod) == "support-000003"


async def test_documents_that_arrive_during_a_load_are_obeyed_in_the_end(rig: PodRig) -> None:
    three = [rig.adapter(seed) for seed in (1, 2, 3)]
    rig.engine.script.load_seconds = 0.1
    async with rig.running() as pod:
        for number, adapter in enumerate(three):
            await pod.put(rig.signed((number + 1, 0), (adapter,), adapter))
            await asyncio.sleep(0.03)
        report = await pod.until(lambda report: report.committed and set(states(report)) == {three[-1].name})
        await pod.until(lambda report: set(rig.engine.adapters) == {three[-1].name})
    assert report.routes[0].entry == "support-000003"


async def test_an_adapter_given_up_while_it_is_fetched_never_reaches_the_engine(rig: PodRig, monkeypatch: pytest.MonkeyPatch) -> None:
    given_up, store_answers = rig.adapter(1), threading.Event()

    def fetch_slowly(*arguments: Any) -> Any:
        store_answers.wait()
        return fetch(*arguments)

    monkeypatch.setattr(adapters, "fetch", fetch_slowly)
    async with rig.running() as pod:
        await pod.put(rig.signed((1, 0), (given_up,), given_up))
        await pod.until(lambda report: report.base_digest is not None)
        assert (await pod.put(rig.signed((2, 0)))).report.committed
        store_answers.set()
        await pod.until(lambda report: not report.adapters)
    assert rig.engine.log == []


async def test_a_loaded_adapter_that_changes_its_answers_fails_at_the_next_probe_and_keeps_serving(rig: PodRig) -> None:
    live, warm = rig.adapter(1), rig.adapter(2)
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (live, warm), live))
        rig.engine.script.without_effect = {warm.name}
        report = await pod.until(lambda report: states(report)[warm.name] == "Failed")
        assert {adapter.name: adapter.reason for adapter in report.adapters}[warm.name] == "ProbeFailed"
        assert (report.committed, await entry_answering(pod)) == (True, "support-000001")
        rig.engine.script.without_effect = set()
        await pod.until(lambda report: states(report)[warm.name] == "Verified")


async def test_probes_that_stay_unanswered_under_load_fail_nothing_at_first(rig: PodRig) -> None:
    adapter = rig.adapter(1)
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (adapter,), adapter))
        rig.engine.script.mute_probes = True
        await asyncio.sleep(0.4)
        assert states(await pod.report()) == {adapter.name: "Verified"}
        await pod.until(lambda report: states(report) == {adapter.name: "Failed"})


async def test_two_channels_share_the_engine_and_nothing_else(rig: PodRig) -> None:
    one, other = rig.adapter(1), rig.adapter(2, uid="other-uid").model_copy(update={"name": "sales-adapter"})
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (one,), one))
        await pod.settled(rig.signed((5, 0), (other,), other, channel="sales", alias="sales", uid="other-uid"), "sales")
        assert (await pod.chat("sales")).headers["x-gatevalve-release"] == "sales-000005"
        assert (await pod.chat("support")).headers["x-gatevalve-release"] == "support-000001"
        listed = (await pod.ask("GET", "/gatevalve/v1/channels")).json
    assert [report["channel"] for report in listed] == ["sales", "support"]


async def test_a_channel_that_lets_an_adapter_go_leaves_another_channels_files_of_the_same_bytes(rig: PodRig) -> None:
    live = rig.adapter(1)
    same = live.model_copy(update={"name": "sales-adapter"})
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (live,), live))
        await pod.settled(rig.signed((1, 0), (same,), same, channel="sales"), "sales")
        await pod.settled(rig.signed((2, 0), channel="sales", drain_seconds=0), "sales")
        await pod.until(lambda report: not report.adapters, "sales")
        assert local_copies(rig) == [live.digest.removeprefix("sha256:")]
        assert rig.engine.adapters == {live.name: str(local_path(rig.root / "cache" / "adapters", "support", live))}


async def test_a_crash_in_the_background_is_survived(rig: PodRig, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = rig.adapter(1)
    async with rig.running() as pod:
        await pod.settled(rig.signed((0, 0)))
        channel = pod.pod.channels["support"]
        monkeypatch.setattr(channel, "_keep_adapters", lambda document: 1 / 0)
        await asyncio.sleep(0.2)
        assert (await pod.chat()).status == 200
        monkeypatch.undo()
        await pod.settled(rig.signed((1, 0), (adapter,), adapter))


async def test_an_adapter_in_force_stays_although_the_next_document_has_no_place_for_it(rig: PodRig) -> None:
    live, bad = rig.adapter(1), rig.adapter(2)
    rig.engine.script.without_effect = {bad.name}
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (live,), live))
        await pod.put(rig.signed((2, 0), (bad,), bad))
        await pod.until(lambda report: states(report).get(bad.name) == "Failed")
        assert await entry_answering(pod) == "support-000001"
        rig.engine.script.without_effect = set()
        await pod.until(lambda report: report.committed and set(states(report)) == {bad.name})


async def test_a_name_on_the_pod_is_never_given_to_other_bytes(rig: PodRig) -> None:
    live, other = rig.adapter(1), rig.adapter(2)
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (live,), live))
        impostor = other.model_copy(update={"name": live.name})
        answer = await pod.put(rig.signed((2, 0), (impostor,), impostor))
    assert (answer.status, answer.report.reason) == (409, "AliasConflict")
