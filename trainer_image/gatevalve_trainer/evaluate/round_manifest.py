"""MANIFEST.json of a round, and what the rounds of a channel have used: both only of what was drawn with the seal."""

from __future__ import annotations

from collections.abc import Iterator

from gatevalve.contracts.files import FileFact, Item, RoundManifest
from gatevalve.contracts.names import MANIFEST, rounds_dir, sentinels_dir
from gatevalve_trainer.evaluate.conversations import conversation_of
from gatevalve_trainer.evaluate.items import from_lines
from gatevalve_trainer.evaluate.marks import check_mark
from gatevalve_trainer.store import Area

ROUND = "round"
"""What the mark of a round's manifest is for."""

SENTINEL = "sentinel"
"""What the mark of a manifest of a sentinel's items is for: neither can stand in the place of the other."""


def marked_manifest(sealed: Area, directory: str, seal: bytes, purpose: str = ROUND) -> RoundManifest:
    """A round's manifest without its mark; raises ContractError unless the mark is the one of these bytes."""
    marked = RoundManifest.parse_json(sealed.read(f"{directory}/{MANIFEST}"))
    manifest = marked.model_copy(update={"mark": None})
    check_mark(seal, purpose, manifest.canonical(), marked.mark, f"{directory}/{MANIFEST}")
    return manifest


def used_conversations(sealed: Area, channel_uid: str, seal: bytes) -> frozenset[str]:
    """Ids of the conversations that items of the channel's rounds and sentinels began with, whether or not anybody has been asked them.

    Raises ContractError or IntegrityError for a round that nobody drew as it is: of one that was changed it is not known what it used.
    """
    return frozenset(map(conversation_of, _drawn_items(sealed, channel_uid, seal)))


def _drawn_items(sealed: Area, channel_uid: str, seal: bytes) -> Iterator[Item]:
    for root, purpose in ((rounds_dir(channel_uid), ROUND), (sentinels_dir(channel_uid), SENTINEL)):
        for directory in (f"{root}/{name}" for name in sealed.names(root)):
            for fact in marked_manifest(sealed, directory, seal, purpose).suites:
                raw = sealed.read_named(directory, FileFact(path=fact.path, size=0, sha256=fact.sha256))
                yield from from_lines(f"{directory}/{fact.path}", raw)
