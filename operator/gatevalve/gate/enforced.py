"""Which policy an entry puts in force, and its digest."""

from __future__ import annotations

from functools import lru_cache

from gatevalve.contracts.kinds import AdapterReleaseSpec
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import EntryReason


def enforced(entry: AdapterReleaseSpec) -> GatePolicySpec | None:
    """The policy that is in force from an entry on; one that waits for a person's approval is on record and no more."""
    return entry.policy if entry.reason is not EntryReason.POLICY_UNAPPROVED else None


@lru_cache(maxsize=256)
def digest_of_policy(policy: GatePolicySpec) -> str:
    """A policy's digest, worked out once: entry after entry asks for the same few."""
    return policy.digest_of()
