"""How documents reach a pod, which ones it refuses, and what it comes back with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gatevalve.contracts.serving import SignedDocument
from gatevalve_serving.metrics import DOCUMENTS_REFUSED
from support.serving import PodRig, SigningKey

pytestmark = pytest.mark.component


def write(rig: PodRig, signed: SignedDocument, channel: str = "support") -> None:
    """As the kubelet does: the name changes what it leads to, in one step."""
    temporary = rig.root / "pool" / "..tmp"
    temporary.write_bytes(signed.canonical())
    temporary.rename(rig.root / "pool" / channel)


def forged(rig: PodRig, signed: SignedDocument) -> SignedDocument:
    return signed.model_copy(update={"document": signed.document.model_copy(update={"drain_seconds": 1})})


def beyond_json(signed: SignedDocument) -> SignedDocument:
    return signed.model_copy(update={"document": signed.document.model_copy(update={"drain_seconds": 10**1500})})


REFUSED: dict[str, tuple[Callable[[PodRig], SignedDocument], str]] = {
    "changed after it was signed": (lambda rig: forged(rig, rig.signed((6, 0))), "Unsigned"),
    "signed by a stranger in the operator's name": (lambda rig: SigningKey().sign(rig.document((6, 0))), "Unsigned"),
    "signed by a stranger in his own name": (lambda rig: (key := SigningKey()).sign(rig.document((6, 0), key_id=key.key_id)), "KeyUnknown"),
    "signed over a number that has no canonical form": (lambda rig: beyond_json(rig.signed((6, 0))), "Unsigned"),
    "older than the held one": (lambda rig: rig.signed((4, 9)), "RevisionOld"),
    "another one with the held revision": (lambda rig: rig.signed((5, 0), drain_seconds=1), "RevisionConflict"),
    "for another namespace": (lambda rig: rig.signed((6, 0), namespace="other"), "ForeignDocument"),
    "for another pool": (lambda rig: rig.signed((6, 0), pool="other"), "ForeignDocument"),
    "for another channel": (lambda rig: rig.signed((6, 0), channel="sales", alias="support"), "ForeignDocument"),
    "for a base of another name": (lambda rig: rig.signed((6, 0), base_name="other"), "BaseMismatch"),
    "for a base with other bytes": (lambda rig: rig.signed((6, 0), base_digest="sha256:" + "9" * 64), "BaseMismatch"),
    "with the base's name as alias": (lambda rig: rig.signed((6, 0), alias="tiny"), "AliasConflict"),
    "with a neighbour's alias": (lambda rig: rig.signed((6, 0), alias="neighbour"), "AliasConflict"),
}


@pytest.mark.parametrize(("make", "reason"), REFUSED.values(), ids=REFUSED.keys())
async def test_a_document_is_refused_with_its_reason_and_the_held_one_goes_on(
    rig: PodRig, make: Callable[[PodRig], SignedDocument], reason: str
) -> None:
    async with rig.running() as pod:
        await pod.settled(rig.signed((5, 0)))
        await pod.settled(rig.signed((1, 0), channel="neighbour"), "neighbour")
        answer = await pod.put(make(rig))
        assert (answer.status, answer.report.reason) == (409, reason)
        assert (answer.report.revision, answer.report.committed) == ((5, 0), True)
        assert (await pod.chat()).headers["x-gatevalve-release"] == "support-000005"
        assert (await pod.report()).reason is None
        assert (await pod.put(rig.signed((7, 0)))).report.reason is None


async def test_a_refused_push_wakes_no_long_poll(rig: PodRig) -> None:
    async with rig.running() as pod:
        before = (await pod.settled(rig.signed((5, 0)))).progress
        assert (await pod.put(SigningKey().sign(rig.document((6, 0))))).status == 409
        await asyncio.sleep(0.2)
        assert (await pod.report()).progress == before


async def test_a_refused_push_is_counted(rig: PodRig) -> None:
    counter = DOCUMENTS_REFUSED.labels("Unsigned")._value
    async with rig.running() as pod:
        before = counter.get()
        for _ in range(2):
            await pod.put(SigningKey().sign(rig.document((6, 0))))
    assert counter.get() == before + 2


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[1]", {"document": {"channel": "support"}, "signature": "x"}],
    ids=["nothing", "empty", "a list", "half a document"],
)
async def test_what_is_no_document_is_a_bad_request_that_names_the_field(rig: PodRig, body: Any) -> None:
    async with rig.running() as pod:
        answer = await pod.ask("PUT", "/gatevalve/v1/channels/support", body)
    assert (answer.status, answer.json["error"]["type"]) == (400, "BadRequestError")


async def test_a_document_whose_routes_lead_nowhere_is_no_document(rig: PodRig) -> None:
    adapter = rig.adapter(1)
    wire = rig.signed((1, 0), (adapter,), adapter).wire()
    wire["document"]["adapters"] = []
    async with rig.running() as pod:
        answer = await pod.ask("PUT", "/gatevalve/v1/channels/support", wire)
    assert answer.status == 400
    assert "routes name adapters that the document lacks" in answer.json["error"]["message"]


async def test_a_refused_push_for_an_unknown_channel_leaves_no_channel_behind(rig: PodRig) -> None:
    async with rig.running() as pod:
        assert (await pod.put(SigningKey().sign(rig.document((1, 0))))).status == 409
        assert (await pod.ask("GET", "/gatevalve/v1/channels")).json == []


async def test_a_channel_without_document_reports_what_the_pod_is(rig: PodRig) -> None:
    async with rig.running() as pod:
        report = await pod.until(lambda report: report.base_digest is not None)
    assert (report.revision, report.committed, report.base_name, report.key_id) == ((), False, "tiny", rig.key.key_id)
    assert (report.limits.max_loras, report.limits.max_lora_rank, report.limits.max_cpu_loras, report.limits.runtime_lora) == (
        2,
        16,
        4,
        True,
    )


async def test_the_configmap_alone_is_enough(rig: PodRig) -> None:
    adapter = rig.adapter(1)
    async with rig.running() as pod:
        write(rig, rig.signed((0, 0)))
        await pod.until(lambda report: report.committed)
        write(rig, rig.signed((1, 0), (adapter,), adapter))
        report = await pod.until(lambda report: report.committed and report.revision == (1, 0))
    assert report.routes[0].adapter == adapter.name


async def test_a_configmap_that_is_behind_a_push_is_no_refusal(rig: PodRig) -> None:
    async with rig.running() as pod:
        await pod.settled(rig.signed((3, 0)))
        write(rig, rig.signed((2, 0)))
        await asyncio.sleep(0.2)
        report = await pod.report()
    assert (report.revision, report.reason) == ((3, 0), None)


async def test_a_forged_configmap_changes_nothing_but_the_report(rig: PodRig) -> None:
    async with rig.running() as pod:
        await pod.settled(rig.signed((3, 0)))
        write(rig, forged(rig, rig.signed((9, 0))))
        report = await pod.until(lambda report: report.reason is not None)
        assert (report.reason, report.revision, report.committed) == ("Unsigned", (3, 0), True)
        write(rig, rig.signed((9, 0)))
        await pod.until(lambda report: report.revision == (9, 0) and report.reason is None)


WRITTEN: dict[str, tuple[Callable[[PodRig], SignedDocument], str | None]] = {
    "an older one": (lambda rig: rig.signed((4, 9)), None),
    "another one with the held revision": (lambda rig: rig.signed((5, 0), drain_seconds=1), "RevisionConflict"),
    "another channel's": (lambda rig: rig.signed((6, 0), channel="sales"), "ForeignDocument"),
    "another pool's": (lambda rig: rig.signed((6, 0), pool="other"), "ForeignDocument"),
    "another namespace's": (lambda rig: rig.signed((6, 0), namespace="other"), "ForeignDocument"),
    "one for another base": (lambda rig: rig.signed((6, 0), base_digest="sha256:" + "9" * 64), "BaseMismatch"),
    "one with the base's name as alias": (lambda rig: rig.signed((6, 0), alias="tiny"), "AliasConflict"),
    "a stranger's": (lambda rig: (key := SigningKey()).sign(rig.document((6, 0), key_id=key.key_id)), "KeyUnknown"),
}


@pytest.mark.parametrize(("make", "reason"), WRITTEN.values(), ids=WRITTEN.keys())
async def test_a_document_written_into_the_configmap_by_hand_changes_nothing_but_the_report(
    rig: PodRig, make: Callable[[PodRig], SignedDocument], reason: str | None
) -> None:
    async with rig.running() as pod:
        await pod.settled(rig.signed((5, 0)))
        write(rig, make(rig))
        await asyncio.sleep(0.2)
        report = await pod.report()
        assert (report.reason, report.revision, report.committed) == (reason, (5, 0), True)
        assert (await pod.chat()).headers["x-gatevalve-release"] == "support-000005"


async def test_the_refusal_of_a_configmap_ends_when_an_older_sound_document_is_in_its_place(rig: PodRig) -> None:
    async with rig.running() as pod:
        await pod.settled(rig.signed((3, 0)))
        write(rig, forged(rig, rig.signed((9, 0))))
        await pod.until(lambda report: report.reason == "Unsigned")
        write(rig, rig.signed((2, 0)))
        report = await pod.until(lambda report: report.reason is None)
    assert report.revision == (3, 0)


async def test_the_refusal_of_a_configmap_ends_when_its_key_is_gone(rig: PodRig) -> None:
    async with rig.running() as pod:
        await pod.settled(rig.signed((3, 0)))
        write(rig, forged(rig, rig.signed((9, 0))))
        await pod.until(lambda report: report.reason == "Unsigned")
        (rig.root / "pool" / "support").unlink()
        await pod.until(lambda report: report.reason is None)


async def test_a_key_that_arrives_late_opens_the_document_that_waited(rig: PodRig) -> None:
    (rig.root / "keys" / "tls.crt").unlink()
    write(rig, rig.signed((1, 0)))
    async with rig.running() as pod:
        await pod.until(lambda report: report.reason == "KeyUnknown")
        (rig.root / "keys" / "tls.crt").write_bytes(rig.key.certificate)
        await pod.until(lambda report: report.committed)


async def test_a_restarted_pod_comes_back_from_its_own_copy(rig: PodRig) -> None:
    adapter = rig.adapter(1)
    async with rig.running() as pod:
        first = await pod.settled(rig.signed((1, 0), (adapter,), adapter))
    rig.engine.adapters.clear()
    async with rig.running() as pod:
        report = await pod.until(lambda report: report.committed)
        assert (await pod.chat()).headers["x-gatevalve-release"] == "support-000001"
    assert report.boot != first.boot


@pytest.mark.parametrize(("copy", "committed", "served"), [((4, 0), (5, 0), 5), ((5, 1), (5, 0), 5), ((6, 0), (5, 0), 6)])
async def test_a_boot_takes_the_newer_of_copy_and_configmap(
    rig: PodRig, copy: tuple[int, int], committed: tuple[int, int], served: int
) -> None:
    async with rig.running() as pod:
        await pod.settled(rig.signed(copy))
    write(rig, rig.signed(committed))
    async with rig.running() as pod:
        report = await pod.until(lambda report: report.committed)
    assert report.revision == max(copy, committed)
    assert report.routes[0].entry == f"support-{served:06d}"


async def test_a_forged_copy_is_not_believed(rig: PodRig) -> None:
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0)))
    copy = rig.root / "cache" / "documents" / "support.json"
    copy.write_text(copy.read_text().replace('"revision":[1,0]', '"revision":[9,0]'))
    write(rig, rig.signed((2, 0)))
    async with rig.running() as pod:
        report = await pod.until(lambda report: report.committed)
    assert report.revision == (2, 0)


async def test_adapters_of_an_earlier_process_that_nobody_wants_are_cleared_away(rig: PodRig) -> None:
    adapter = rig.adapter(1)
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (adapter,), adapter))
    (rig.root / "cache" / "adapters" / "left-over").mkdir()
    async with rig.running() as pod:
        await pod.until(lambda report: report.committed)
        assert [str(path) for path in (rig.root / "cache" / "adapters").iterdir()] == [rig.engine.adapters[adapter.name]]


async def test_a_long_poll_returns_with_the_next_change(rig: PodRig) -> None:
    async with rig.running() as pod:
        report = await pod.settled(rig.signed((1, 0)))
        asked = asyncio.create_task(pod.ask("GET", "/gatevalve/v1/channels/support", query=f"after={report.progress}&wait=20"))
        await asyncio.sleep(0.1)
        assert not asked.done()
        await pod.put(rig.signed((2, 0)))
        assert (await asyncio.wait_for(asked, 1)).report.revision == (2, 0)


@pytest.mark.parametrize("query", ["after=0&wait=20", "wait=20", "after={progress}&wait=0.1", "after=99999&wait=20"])
async def test_a_long_poll_from_another_boot_or_for_a_short_time_answers_soon(rig: PodRig, query: str) -> None:
    async with rig.running() as pod:
        report = await pod.settled(rig.signed((1, 0)))
        asked = pod.ask("GET", "/gatevalve/v1/channels/support", query=query.format(progress=report.progress))
        assert (await asyncio.wait_for(asked, 2)).status == 200


async def test_a_long_poll_sees_a_document_that_changes_no_route(rig: PodRig) -> None:
    async with rig.running() as pod:
        report = await pod.settled(rig.signed((1, 0)))
        asked = asyncio.create_task(pod.ask("GET", "/gatevalve/v1/channels/support", query=f"after={report.progress}&wait=20"))
        await asyncio.sleep(0.05)
        await pod.put(rig.signed((1, 1)))
        assert (await asyncio.wait_for(asked, 1)).report.revision == (1, 1)


async def test_a_long_poll_does_not_keep_a_server_from_ending(rig: PodRig) -> None:
    rig.engine.state.server = SimpleNamespace(should_exit=False)
    async with rig.running() as pod:
        report = await pod.settled(rig.signed((1, 0)))
        asked = asyncio.create_task(pod.ask("GET", "/gatevalve/v1/channels/support", query=f"after={report.progress}&wait=20"))
        await asyncio.sleep(0.05)
        rig.engine.state.server.should_exit = True
        assert (await asyncio.wait_for(asked, 2)).status == 200


@pytest.mark.parametrize("query", ["after=x", "after=1&wait=soon"])
async def test_a_poll_that_makes_no_sense_is_a_bad_request(rig: PodRig, query: str) -> None:
    async with rig.running() as pod:
        assert (await pod.ask("GET", "/gatevalve/v1/channels/support", query=query)).status == 400
