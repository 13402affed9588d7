"""The published adapters that a candidate is measured against: incumbent and anchor, verified before anything rests on them."""

from __future__ import annotations

from collections.abc import Iterator

from gatevalve.contracts.errors import ContractError, GatevalveError
from gatevalve.contracts.jobs import DrawInput, PublishInput
from gatevalve.contracts.names import adapter_dir
from gatevalve_trainer.adapter.files import check_base, read_adapter
from gatevalve_trainer.store import Area

INCUMBENT, ANCHOR = "incumbentDigest", "anchorDigest"

REMEDIES = {
    INCUMBENT: "find out who wrote to it, and restore it, or pin an entry whose files are sound",
    ANCHOR: "find out who wrote to it, and restore it, or name another anchor",
}
"""What to do about an arm, by the field that names it."""


def verified_arms(area: Area, job: DrawInput | PublishInput) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Digest and covered files of each arm that is an adapter, once each; raises ContractError by its field for one that is not sound."""
    fields = {job.anchor_digest: ANCHOR, job.incumbent_digest: INCUMBENT}  # often one adapter is both
    for digest, field in fields.items():
        if digest is not None:
            yield digest, _verified(area, job, field, digest)


def _verified(area: Area, job: DrawInput | PublishInput, field: str, digest: str) -> dict[str, bytes]:
    try:
        manifest, files = read_adapter(area, adapter_dir(job.channel_uid, digest), digest)
        check_base(manifest, job.base.digest)
    except GatevalveError as error:
        raise ContractError(field, f"the published adapter is not sound ({error})", REMEDIES[field]) from error
    return files
