"""`gatevalve-trainer draw`: the first Job of a candidate. It finds everything that a test will need, before anything is trained or paid."""

from __future__ import annotations

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.jobs import DrawInput, RoundResult
from gatevalve.contracts.policy import Suite
from gatevalve_trainer.adapter.arms import verified_arms
from gatevalve_trainer.evaluate.canaries import load_canaries
from gatevalve_trainer.evaluate.judge_identity import check_judge
from gatevalve_trainer.evaluate.rounds import Areas, Keys
from gatevalve_trainer.evaluate.seeds import seal_seed_from_environment
from gatevalve_trainer.evaluate.suites import load_suites, verifiers
from gatevalve_trainer.phases import Phases
from gatevalve_trainer.split import split_key_from_environment


def run(job: DrawInput) -> RoundResult:
    """Draw the round's items, or verify those that are there, and find every task, judge, fixed file and arm that the test will need.

    Raises ContractError when one of them is not what the policy or the log says, ItemSupply when there are too few fresh items.
    """
    phases, areas, keys = Phases(), Areas.of(job), Keys(seal_seed_from_environment(), split_key_from_environment())
    _check_policy(job)
    verifiers(job.policy)
    check_judge(job.policy, job.base.name)
    load_canaries(job.policy, areas.data)
    with phases.phase("verify") as counts:
        counts["arms"] = sum(1 for _ in verified_arms(areas.data, job))
    with phases.phase("draw") as counts:
        suites = [loaded for loaded in load_suites(job, areas, keys) if _is_fresh(loaded.suite)]
        counts["items"] = sum(len(loaded.items) for loaded in suites)
    return RoundResult(round=job.round, items=counts["items"])


def _check_policy(job: DrawInput) -> None:
    if (actual := job.policy.digest_of()) != job.policy_digest:
        raise ContractError("policy", f"has digest {actual}, the job names {job.policy_digest}", "give the policy that is in force")


def _is_fresh(suite: Suite) -> bool:
    return suite.items.fresh is not None
