"""From a reply to a line in a traffic segment, and feedback on it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zstandard
from prometheus_client import REGISTRY

from gatevalve.contracts.files import FeedbackRecord, TrafficRecord
from gatevalve.contracts.kinds import Capture
from gatevalve_serving import capture as module
from gatevalve_serving.segments import Segments
from support.serving import UID, PodRig, RunningPod, eventually

pytestmark = pytest.mark.component


@dataclass
class Watched:
    """A pod and what its volume holds."""

    pod: RunningPod
    rig: PodRig

    def files(self) -> list[Path]:
        return sorted((self.rig.data / UID / "traffic").rglob("*.zst*"))

    def lines(self) -> list[dict[str, Any]]:
        found = []
        for path in self.files():
            with zstandard.ZstdDecompressor().stream_reader(path.read_bytes(), read_across_frames=True) as stream:
                found += [json.loads(line) for line in stream.read().splitlines()]
        return found

    async def written(self, count: int) -> list[dict[str, Any]]:
        await eventually(lambda: len(self.lines()) >= count)
        return self.lines()


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    rig = PodRig(tmp_path)
    adapter = rig.adapter(1)
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (adapter,), adapter, capture=Capture(segment_seconds=60)))
        yield Watched(pod, rig)


def dropped(reason: str) -> float:
    return REGISTRY.get_sample_value("gatevalve_serving_capture_dropped_total", {"channel": "support", "reason": reason}) or 0.0


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_every_choice_becomes_a_record(watched: Watched, stream: bool) -> None:
    await watched.pod.chat(stream=stream, n=2, max_tokens=3, seed=5)
    first, second = (TrafficRecord.parse(line) for line in await watched.written(2))
    adapter = next(iter(watched.rig.engine.adapters))
    assert (first.choice, second.choice, first.id) == (0, 1, second.id)
    assert (first.channel, first.entry, first.route) == ("support", "support-000001", "chat")
    assert first.adapter_digest is not None
    assert adapter.endswith(first.adapter_digest.removeprefix("sha256:")[:8])
    assert first.base_digest == watched.rig.base_digest
    assert (len(first.token_ids), len(first.logprobs), first.prompt_token_ids, first.finish_reason) == (3, 3, [7, 8, 9], "length")
    assert (first.messages, first.seed, first.max_tokens) == ([{"role": "user", "content": "hi"}], 5, 3)
    assert (first.temperature, first.top_k, first.exact) == (1.0, 0, True)
    assert first.text == "".join(f"é{token} " for token in first.token_ids)


async def test_stated_sampling_is_recorded_as_such(watched: Watched) -> None:
    await watched.pod.chat(temperature=0.5)
    (record,) = await watched.written(1)
    assert (record["temperature"], record["topK"], record["exact"]) == (0.5, 20, False)


async def test_outside_the_learning_slice_the_engines_defaults_are_recorded(tmp_path: Path) -> None:
    rig = PodRig(tmp_path)
    async with rig.running() as pod:
        await pod.settled(rig.signed((0, 0), capture=Capture(learning_permille=0)))
        await pod.chat()
        (record,) = await Watched(pod, rig).written(1)
    assert (record["temperature"], record["topK"], record["exact"]) == (0.7, 20, False)
    assert "adapterDigest" not in record


async def test_probes_of_the_operator_are_not_captured(watched: Watched) -> None:
    await watched.pod.ask("POST", "/v1/chat/completions", {"model": "support", "messages": []}, {"x-gatevalve-probe": "1"})
    await watched.pod.chat()
    await watched.written(1)
    await asyncio.sleep(0.2)
    assert len(watched.lines()) == 1
    assert "return_token_ids" not in watched.rig.engine.asked[0]


async def test_without_capture_nothing_is_asked_for_and_nothing_written(tmp_path: Path) -> None:
    rig = PodRig(tmp_path)
    async with rig.running() as pod:
        await pod.settled(rig.signed((0, 0), capture=Capture(enabled=False)))
        answer = await pod.chat()
        assert (await pod.ask("POST", "/v1/feedback", {"id": answer.json["id"], "score": 1})).status == 404
    assert rig.engine.asked[-1].keys() == {"model", "messages"}
    assert Watched(pod, rig).files() == []


async def test_feedback_by_reply_id_lands_beside_the_reply(watched: Watched) -> None:
    answer = await watched.pod.chat()
    scored = await watched.pod.ask("POST", "/v1/feedback", {"id": answer.json["id"], "score": 0.25, "label": "meh"})
    assert (scored.status, scored.json) == (202, {"id": answer.json["id"], "score": 0.25})
    lines = await watched.written(2)
    assert FeedbackRecord.parse(lines[1]) == FeedbackRecord(id=answer.json["id"], at=lines[1]["at"], score=0.25, label="meh")


async def test_a_streaming_client_can_score_as_soon_as_it_has_seen_the_id(watched: Watched) -> None:
    watched.rig.engine.script.step_seconds = 0.05
    stream = asyncio.create_task(watched.pod.chat(stream=True, max_tokens=8))
    ids = watched.pod.pod.capture._ids
    await eventually(lambda: bool(ids))
    assert not stream.done()
    (name,) = ids
    scored = await watched.pod.ask("POST", "/v1/feedback", {"id": name, "score": 1})
    assert (scored.status, (await stream).events[0]["id"]) == (202, name)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"id": "chatcmpl-nobodys", "score": 1}, 404, "captured no reply"),
        ({"id": "x", "score": 2}, 422, "less than or equal to 1"),
        ({"id": "x", "score": -0.1}, 422, "greater than or equal to 0"),
        ({"id": "x", "score": "good"}, 422, "valid number"),
        ({"id": "x"}, 422, "score"),
        ({"score": 1}, 422, "id"),
        ({"id": "x", "score": 1, "stars": 5}, 422, "stars"),
        (b'{"id": "x", "score": NaN}', 422, "score"),
        (b"{", 422, "JSON"),
    ],
    ids=["unknown reply", "too good", "too bad", "a word", "no score", "no id", "another field", "not a number", "no JSON"],
)
async def test_feedback_that_cannot_be_used_says_why(watched: Watched, body: Any, status: int, words: str) -> None:
    answer = await watched.pod.ask("POST", "/v1/feedback", body)
    assert answer.status == status
    assert words in answer.json["error"]["message"]


async def test_only_the_last_ids_are_known(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDS_KEPT", 2)
    ids = [(await watched.pod.chat()).json["id"] for _ in range(3)]
    statuses = [(await watched.pod.ask("POST", "/v1/feedback", {"id": name, "score": 1})).status for name in ids]
    assert statuses == [404, 202, 202]


async def test_a_reply_that_broke_off_is_counted_and_not_written(watched: Watched) -> None:
    before = dropped("incomplete")
    watched.rig.engine.script.step_seconds = 0.01
    with pytest.raises(OSError, match="hung up"):
        await watched.pod.ask("POST", "/v1/chat/completions", {"model": "support", "messages": [], "stream": True}, gone_after=2)
    assert dropped("incomplete") == before + 1


async def test_a_full_queue_drops_records_and_fails_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk_answers, add = threading.Event(), Segments.add

    def add_slowly(segments: Segments, *line: Any) -> None:
        disk_answers.wait()
        add(segments, *line)

    monkeypatch.setattr(module, "QUEUE_LENGTH", 2)
    monkeypatch.setattr(Segments, "add", add_slowly)
    before, rig = dropped("queue_full"), PodRig(tmp_path)
    async with rig.running() as pod:
        await pod.settled(rig.signed((0, 0), capture=Capture()))
        answers = [await pod.chat() for _ in range(6)]
        scored = await pod.ask("POST", "/v1/feedback", {"id": answers[0].json["id"], "score": 1})
        disk_answers.set()
    assert {answer.status for answer in answers} == {200}
    assert (scored.status, scored.headers["retry-after"]) == (503, "1")
    assert dropped("queue_full") >= before + 4
    assert len(Watched(pod, rig).lines()) in (2, 3)


async def test_a_request_too_long_to_keep_is_served_and_counted(watched: Watched) -> None:
    before = dropped("too_large")
    answer = await watched.pod.chat(messages=[{"role": "user", "content": "x" * (1 << 20)}])
    assert (answer.status, dropped("too_large")) == (200, before + 1)


async def test_a_volume_that_is_gone_costs_records_and_fails_no_request(watched: Watched) -> None:
    before = dropped("not_written")
    (watched.rig.data / UID / "traffic").write_text("a file where the directory should be")
    assert (await watched.pod.chat()).status == 200
    await eventually(lambda: dropped("not_written") > before)
    assert (await watched.pod.chat()).status == 200


async def test_segments_close_by_themselves_and_at_the_end(tmp_path: Path) -> None:
    rig = PodRig(tmp_path)
    async with rig.running() as pod:
        watched = Watched(pod, rig)
        await pod.settled(rig.signed((0, 0), capture=Capture(segment_seconds=1)))
        await pod.chat()
        await watched.written(1)
        assert [path.suffix for path in watched.files()] == [".open"]
        await eventually(lambda: watched.files()[0].suffix == ".zst")
        await pod.chat()
    assert [path.suffix for path in watched.files()] == [".zst", ".zst"]
    assert len(watched.lines()) == 2
