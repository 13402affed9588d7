"""The snapshot Job: waits for the window's segments, joins replies with scores, splits, and publishes the rows under their digest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import SCORE_DIGITS, FileFact, SnapshotManifest, SnapshotRow, TrafficRecord
from gatevalve.contracts.jobs import SnapshotInput, SnapshotResult
from gatevalve.contracts.names import MANIFEST, snapshot_dir
from gatevalve_trainer.errors import NoSignal
from gatevalve_trainer.phases import Phases
from gatevalve_trainer.snapshot.join import Joined, Wanted, join
from gatevalve_trainer.snapshot.parquet import drift_bytes, train_bytes
from gatevalve_trainer.snapshot.segments import Clock, Segment, Window, instant, read_segment, settled_segments
from gatevalve_trainer.split import split_key_from_environment
from gatevalve_trainer.store import Area

TRAIN_PART, DRIFT_PART = "train/part-00000.parquet", "drift/part-00000.parquet"

MIN_REWARDED = 16
"""Fewest scored rows that a snapshot is cut for; with fewer there is nothing to learn."""


def run(job: SnapshotInput, clock: Clock | None = None) -> SnapshotResult:
    """Cut a snapshot and publish it; the same traffic gives the same digest.

    Raises NoSignal when fewer than MIN_REWARDED rows carry a score, BackendUnavailable when a segment of the window stays open.
    """
    phases, area, window, key = Phases(), Area(job.data), _window(job), split_key_from_environment()
    with phases.phase("settle") as counts:
        paths = settled_segments(area, job.channel_uid, window, job.close_wait_seconds, clock or Clock())
        counts["segments"] = len(paths)
    with phases.phase("read") as counts:
        segments = [segment for path in paths if _relevant(segment := read_segment(area, path), window)]
        counts.update(segments=len(segments), records=sum(len(segment.records) for segment in segments))
    with phases.phase("join") as counts:
        joined = _join(segments, Wanted(window, job.base_digest, job.incumbent_digest), key)
        counts.update(rows=len(joined.train), rewarded=len(_scores(joined.train)), dropped=dict(joined.dropped), split=dict(joined.split))
    _refuse_no_signal(joined)
    with phases.phase("publish"):
        return _publish(area, job, [segment.fact for segment in segments], joined)


def _window(job: SnapshotInput) -> Window:
    window = Window(instant(job.window_from), instant(job.window_to))
    if window.start >= window.end:
        raise ContractError("windowTo", f"{job.window_to} is not after {job.window_from}", "give a window that ends after it starts")
    return window


def _relevant(segment: Segment, window: Window) -> bool:
    """Whether a segment shapes the snapshot: what came after the window's end must not change its digest."""
    opened = min((instant(record.at) for record in segment.records), default=None)
    newest = max((instant(record.at) for record in segment.records), default=None)
    return opened is not None and newest is not None and opened < window.end and newest >= window.start


def _join(segments: Sequence[Segment], wanted: Wanted, key: bytes) -> Joined:
    records = list(chain.from_iterable(segment.records for segment in segments))
    replies = [record for record in records if isinstance(record, TrafficRecord) and instant(record.at) in wanted.window]
    joined = join(replies, (record for record in records if not isinstance(record, TrafficRecord)), wanted, key)
    joined.dropped["unreadableLine"] = sum(segment.unreadable_lines for segment in segments)
    joined.dropped["tornFrame"] = sum(segment.torn for segment in segments)
    joined.dropped = +joined.dropped  # without the reasons that never occurred
    return joined


def _scores(rows: Sequence[SnapshotRow]) -> list[float]:
    return [row.score for row in rows if row.score is not None]


def _refuse_no_signal(joined: Joined) -> None:
    rewarded = len(_scores(joined.train))
    if rewarded < MIN_REWARDED:
        dropped = ", ".join(f"{reason} {count}" for reason, count in sorted(joined.dropped.items())) or "none"
        raise NoSignal(
            f"{rewarded} of {len(joined.train)} rows carry a score, {MIN_REWARDED} are needed "
            f"(sealed {joined.split['sealed']}, drift {joined.split['drift']}, dropped: {dropped}); widen the window or send feedback"
        )


def _publish(area: Area, job: SnapshotInput, segments: Sequence[FileFact], joined: Joined) -> SnapshotResult:
    files = {TRAIN_PART: train_bytes(joined.train), DRIFT_PART: drift_bytes(joined.drift)}
    manifest = _manifest(job, segments, joined, files)
    digest = manifest.digest_of()
    area.publish(snapshot_dir(job.channel_uid, digest), {**files, MANIFEST: manifest.canonical()})
    return SnapshotResult(snapshot_digest=digest, rows=manifest.rows, rewarded=manifest.rewarded)


def _manifest(job: SnapshotInput, segments: Sequence[FileFact], joined: Joined, files: dict[str, bytes]) -> SnapshotManifest:
    scores = _scores(joined.train)
    return SnapshotManifest(
        channel_uid=job.channel_uid,
        window_from=job.window_from,
        window_to=job.window_to,
        incumbent_digest=job.incumbent_digest,
        base_digest=job.base_digest,
        segments=tuple(sorted(segments, key=lambda fact: fact.path)),
        files=tuple(FileFact(path=path, size=len(data), sha256=sha256(data)) for path, data in sorted(files.items())),
        rows=len(joined.train),
        rewarded=len(scores),
        mean_score=f"{sum(scores) / len(scores):.{SCORE_DIGITS}f}",
        dropped=dict(joined.dropped),
        split={side: joined.split[side] for side in ("train", "sealed", "drift")},
    )
