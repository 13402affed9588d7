"""Ports that count what an operator writes, and end it, or break the answer, at one of those writes."""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from gatevalve.contracts.errors import ClusterError, ServingError
from gatevalve.contracts.serving import PodReport, SignedDocument
from gatevalve.engine.engine import Ports
from gatevalve.io.ports import Cluster, KubeObject, Listing, LogStore, PodAddress, Resource, ServingPods

T = TypeVar("T")


class Died(BaseException):
    """The process was killed: nothing that it would have done after that happens."""


class Moment(StrEnum):
    """When in a write something goes wrong."""

    BEFORE = "before it takes effect"
    AFTER = "after it takes effect, before the answer"


def die() -> NoReturn:
    """In a test's own process, where a kill is an exception that nobody catches."""
    raise Died


@dataclass
class Fuse:
    """Counts the writes of one process and blows at the `at`-th: the process dies or, with `lives`, sees an error once and goes on."""

    at: int | None = None
    moment: Moment = Moment.AFTER
    lives: bool = False
    kill: Callable[[], NoReturn] = die
    writes: list[str] = field(default_factory=list)
    blown: bool = False

    @property
    def is_dead(self) -> bool:
        """The process was killed."""
        return self.blown and not self.lives

    def check(self) -> None:
        """A dead process neither reads nor writes."""
        if self.is_dead:
            self.kill()

    def write(self, what: str, work: Callable[[], T], error: Exception) -> T:
        """One write that blocks."""
        due = self._counted(what)
        if due and self.moment is Moment.BEFORE:
            self._blow(error)
        result = work()
        if due:
            self._blow(error)
        return result

    async def write_async(self, what: str, work: Callable[[], Awaitable[T]], error: Exception) -> T:
        """One write that waits."""
        due = self._counted(what)
        if due and self.moment is Moment.BEFORE:
            self._blow(error)
        result = await work()
        if due:
            self._blow(error)
        return result

    def _counted(self, what: str) -> bool:
        self.check()
        self.writes.append(what)
        return not self.blown and len(self.writes) == self.at

    def _blow(self, error: Exception) -> NoReturn:
        self.blown = True
        if self.lives:
            raise error
        self.kill()


@dataclass
class BrokenDisk(Fuse):
    """A disk on which one step of a publish fails with one error, every time until it is mended."""

    step: str = ""
    number: int = 0
    is_broken: bool = False

    def write(self, what: str, work: Callable[[], T], error: Exception) -> T:
        """A step of a publish."""
        if self.is_broken and what.startswith(self.step):
            raise broken(self.number)
        return super().write(what, work, error)


@dataclass(frozen=True)
class CrashingCluster:
    """The Kubernetes API behind a fuse. Implements `ports.Cluster`."""

    real: Cluster
    fuse: Fuse

    async def get(self, resource: Resource, name: str) -> KubeObject | None:
        self.fuse.check()
        return await self.real.get(resource, name)

    async def list(self, resource: Resource, labels: str = "") -> Listing:
        self.fuse.check()
        return await self.real.list(resource, labels)

    async def create(self, resource: Resource, body: Mapping[str, Any]) -> KubeObject:
        return await self._write(f"create {resource.plural}/{body['metadata']['name']}", lambda: self.real.create(resource, body))

    async def delete(self, resource: Resource, name: str, uid: str | None = None) -> None:
        await self._write(f"delete {resource.plural}/{name}", lambda: self.real.delete(resource, name, uid))

    async def apply(self, resource: Resource, body: Mapping[str, Any], manager: str, subresource: str = "") -> KubeObject:
        what = f"apply {resource.plural}/{body['metadata']['name']} {subresource}"
        return await self._write(what, lambda: self.real.apply(resource, body, manager, subresource))

    async def merge(self, resource: Resource, name: str, patch: Mapping[str, Any], subresource: str = "") -> KubeObject:
        return await self._write(
            f"merge {resource.plural}/{name} {subresource}", lambda: self.real.merge(resource, name, patch, subresource)
        )

    async def _write(self, what: str, work: Callable[[], Awaitable[T]]) -> T:
        return await self.fuse.write_async(what, work, ClusterError(f"{what}: the API server does not answer: the connection broke"))


@dataclass(frozen=True)
class CrashingPods:
    """Serving pods behind a fuse. Implements `ports.ServingPods`."""

    real: ServingPods
    fuse: Fuse

    async def put_document(self, pod: PodAddress, signed: SignedDocument) -> PodReport:
        what = f"put {signed.document.channel} {signed.document.revision} to {pod.ip}"
        return await self.fuse.write_async(what, lambda: self.real.put_document(pod, signed), ServingError(f"{what}: the connection broke"))

    async def report(self, pod: PodAddress, channel: str, seconds: float) -> PodReport:
        self.fuse.check()
        return await self.real.report(pod, channel, seconds)

    async def next_report(self, pod: PodAddress, channel: str, after: int) -> PodReport:
        self.fuse.check()
        return await self.real.next_report(pod, channel, after)

    async def ask_alias(self, pod: PodAddress, alias: str) -> str | None:
        self.fuse.check()
        return await self.real.ask_alias(pod, alias)


@dataclass(frozen=True)
class CrashingLog:
    """The external log behind a fuse: with `crashing_disk` every step of a publish is a write. Implements `ports.LogStore`."""

    real: LogStore
    fuse: Fuse

    async def publish(self, channel_uid: str, sequence: int, data: bytes) -> None:
        self.fuse.check()
        before = _WRITER.set(self.fuse)
        try:
            await self.real.publish(channel_uid, sequence, data)
        finally:
            _WRITER.reset(before)

    async def sequences(self, channel_uid: str) -> frozenset[int]:
        self.fuse.check()
        return await self.real.sequences(channel_uid)

    async def read(self, channel_uid: str, sequence: int) -> bytes:
        self.fuse.check()
        return await self.real.read(channel_uid, sequence)


_WRITER: ContextVar[Fuse | None] = ContextVar("writer", default=None)
"""The process whose publish runs here; threads inherit it from the task that started them."""

_SYSTEM: dict[str, Callable[..., None]] = {"fsync": os.fsync, "link": os.link, "unlink": os.unlink}


@contextmanager
def crashing_disk() -> Iterator[None]:
    """Every step of a CrashingLog's publish goes through its fuse.

    Steps: the temporary name's bytes (dying after them leaves half of them), its fsync, the link, the directory's fsync, the unlink.
    """
    for name, crashing in (("fsync", _fsync), ("link", _link), ("unlink", _unlink)):
        setattr(os, name, crashing)
    try:
        yield
    finally:
        for name, kept in _SYSTEM.items():
            setattr(os, name, kept)


def _fsync(handle: int) -> None:
    fuse, real = _WRITER.get(), _SYSTEM["fsync"]
    if fuse is None:
        return real(handle)
    where = Path(f"/proc/self/fd/{handle}").readlink()
    if where.is_dir():
        return fuse.write("fsync of the directory", lambda: real(handle), broken(errno.EIO))
    fuse.write(f"bytes of {where.name[:12]}", lambda: _halve(handle, fuse), broken(errno.ENOSPC))
    return fuse.write(f"fsync of {where.name[:12]}", lambda: real(handle), broken(errno.EIO))


def _link(source: Any, target: Any, **more: Any) -> None:
    return _stepped(f"link {Path(target).name}", lambda: _SYSTEM["link"](source, target, **more))


def _unlink(path: Any, **more: Any) -> None:
    return _stepped(f"unlink {Path(path).name[:12]}", lambda: _SYSTEM["unlink"](path, **more))


def _stepped(what: str, work: Callable[[], None]) -> None:
    fuse = _WRITER.get()
    return work() if fuse is None else fuse.write(what, work, broken(errno.EROFS))


def broken(number: int) -> OSError:
    """The error of a system call."""
    return OSError(number, os.strerror(number))


def _halve(handle: int, fuse: Fuse) -> None:
    """A write that is cut short by the death of its process leaves only a part of its bytes."""
    if fuse.at == len(fuse.writes) and not fuse.lives:
        os.ftruncate(handle, os.fstat(handle).st_size // 2)


def behind(fuse: Fuse, real: Ports) -> Ports:
    """Every port that writes behind one fuse."""
    return replace(
        real,
        cluster=CrashingCluster(real.cluster, fuse),
        serving=CrashingPods(real.serving, fuse),
        log_store=CrashingLog(real.log_store, fuse),
    )
