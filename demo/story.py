"""The story: the base, honest sessions with their verdicts and the learning curve, two poisoned ones, a way back under load."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rich.markup import escape
from rich.table import Table

from demo import objects, rollback
from demo.bypass import Intruder
from demo.stage import CHANNEL, POOL_URL, Stage, StoryError, read_report

SESSION_REPLIES = 640
LOAD_SECONDS = 25
REFUSED = ("Rejected", "Inconclusive")
"""States in which the gate has refused a candidate."""


@dataclass(frozen=True)
class Session:
    """A session of scored traffic and the candidate trained on its window."""

    name: str
    recipe: str
    reward: str = "honest"
    parameters: dict[str, str] = field(default_factory=dict)
    seed: int = 0


HONEST = (
    Session("support-1-monday", "SFT", seed=1),
    Session("support-2-tuesday", "LoggedRL", seed=2),
    Session("support-3-wednesday", "SFT", seed=3),
    Session("support-4-thursday", "LoggedRL", seed=4),
    Session("support-5-friday", "SFT", seed=5),
    Session("support-6-saturday", "SFT", seed=6),
)
POISONED = (
    Session("support-7-flipped", "LoggedRL", "flipped", seed=7),
    Session("support-8-brevity", "LoggedRL", "brevity", {"learningRate": "1e-2", "epochs": "6"}, seed=8),
)


@dataclass
class Outcome:
    """What the story saw; becomes demo/out/demo.json."""

    curve: list[float] = field(default_factory=list)
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    poisoned_rejected: int = 0
    requests: int = 0
    failed_requests: int = 0
    flip_ms: list[int] = field(default_factory=list)
    rollback_ms: float | None = None
    bypass_attempts: int = 0
    bypass_attempts_blocked: int = 0
    chain_ok: bool = False

    def broken_promises(self) -> list[str]:
        """What the story promises and this telling did not show."""
        promises = {
            "a log that verifies": self.chain_ok,
            "every poisoned candidate refused by the gate": self.poisoned_rejected
            == sum(row["scores"] != "honest" for row in self.verdicts),
            "no failed request": self.failed_requests == 0,
            "every attempt to go round the gate blocked": 0 < self.bypass_attempts == self.bypass_attempts_blocked,
            "a rollback": self.rollback_ms is not None,
            "held-out accuracy of 0.80 or more, 0.30 above the base": self.curve[-1] >= max(0.80, self.curve[0] + 0.30),
        }
        return [promise for promise, kept in promises.items() if not kept]

    def count(self, report: dict[str, Any]) -> None:
        """Add a client's requests."""
        self.requests += report["requests"]
        self.failed_requests += report["failed"]


@dataclass
class Story:
    """Tells the story on a stage."""

    stage: Stage
    outcome: Outcome = field(default_factory=Outcome)

    def measure(self, title: str) -> float:
        """Held-out accuracy through the alias, on a set that neither trainer nor gate sees."""
        name = f"held-out-{len(self.outcome.curve)}"
        with self.stage.step(f"held-out accuracy {title}", "held_out"):
            report = self.stage.client(name, "held-out")
        self.outcome.count(report)
        self.outcome.curve.append(report["accuracy"])
        return float(report["accuracy"])

    def session(self, session: Session) -> bool:
        """One session: traffic, candidate, verdict; True when it was promoted."""
        with self.stage.step(f"{session.name}: {SESSION_REPLIES} replies with {session.reward} scores", "traffic"):
            arguments = ("--count", str(SESSION_REPLIES), "--seed", str(session.seed), "--reward", session.reward)
            report = self.stage.client(f"traffic-{session.name}", "traffic", *arguments)
        self.outcome.count(report)
        candidate = objects.candidate(session.name, (report["from"], report["to"]), session.recipe, **session.parameters)
        with self.stage.step(f"{session.name}: kubectl apply, {session.recipe}, gate", "candidates"):
            self.stage.apply(candidate)
            ended = self.stage.finish_candidate(session.name)
        return self._verdict(session, report, ended)

    def _verdict(self, session: Session, report: dict[str, Any], ended: dict[str, Any]) -> bool:
        status = ended["status"]
        decision = status.get("decision", {})
        effect = decision.get("effectBasisPoints")
        row = {
            "candidate": session.name,
            "recipe": session.recipe,
            "scores": session.reward,
            "served_accuracy": report["accuracy"],
            "state": status["state"],
            "reason": decision.get("reason", _decided(status)),
            "effect_bp": effect,
            "entry": decision.get("entry"),
        }
        self.outcome.verdicts.append(row)
        if status["state"] != "Promoted":
            self.stage.console.print(f"    [yellow]{status['state']}[/] {row['reason']} — the alias stays as it is")
            return False
        release = self.stage.wait_live(decision["entry"])
        flip = release["status"].get("timings", {}).get("flipMs")
        if flip is not None:
            self.outcome.flip_ms.append(flip)
        gain = f"+{effect / 100:.1f} points" if effect is not None else ""
        self.stage.console.print(f"    [green]Accepted[/] {gain}, live as [bold]{decision['entry']}[/], flipped in {flip} ms")
        return True

    def honest_days(self, sessions: tuple[Session, ...] = HONEST) -> None:
        """Honest sessions; the curve is measured after each promotion."""
        self.measure("of the base")
        for session in sessions:
            if self.session(session):
                self.measure(f"after {session.name}")
            else:
                self.outcome.curve.append(self.outcome.curve[-1])

    def poisoned_days(self, sessions: tuple[Session, ...] = POISONED) -> None:
        """Sessions poisoned through the feedback API, in windows that no later snapshot covers."""
        for session in sessions:
            self.session(session)
            self.outcome.poisoned_rejected += self.outcome.verdicts[-1]["state"] in REFUSED

    def bypass_attempts(self) -> None:
        """What the gate refused is offered to the alias past the gate, with all an administrator may do."""
        intruder = Intruder.with_refused_adapter(self.stage)
        with self.stage.step("four attempts to go round the gate", "bypass"):
            attempts = intruder.attempts()
        for attempt in attempts:
            self.outcome.bypass_attempts += 1
            self.outcome.bypass_attempts_blocked += attempt.blocked
            mark = "[green]blocked[/]" if attempt.blocked else "[red]NOT BLOCKED[/]"
            self.stage.console.print(f"    {mark} {escape(attempt.title)}")
            self.stage.console.print(f"      [dim]{escape(attempt.refusal or 'nobody refused it')}[/]")

    def way_back(self) -> None:
        """A pin rolls back under streaming load; then the pin is removed and nothing is promoted by itself."""
        serving = [r for r in self.stage.releases() if r["spec"]["action"] in ("Open", "Promote", "Rollback")]
        if len(serving) < 2:
            raise StoryError("nothing was promoted, so there is nothing to roll back")
        target = serving[-2]["metadata"]["name"]
        load = objects.client_job("load", POOL_URL, CHANNEL, "load", "--seconds", str(LOAD_SECONDS))
        with self.stage.step(f"kubectl patch: pin {target} while eight clients stream", "rollback"):
            self.stage.start_job(load)
            self.stage.wait_for("the load", 120, lambda: self.stage.get("job", "load").get("status", {}).get("ready"))
            restored, milliseconds = rollback.pin(self.stage, target, "the demo shows the way back")
            report = read_report(self.stage.finish_job("load"))
        self.outcome.count(report)
        self.outcome.rollback_ms = milliseconds
        self.stage.console.print(f"    [bold]{restored}[/] restores {target}; {milliseconds} ms from the pin to the last pod's answer")
        self.stage.kubectl("patch", "adapterchannel", CHANNEL, "--type", "json", "--patch", '[{"op": "remove", "path": "/spec/pin"}]')

    def log(self) -> Table:
        """The release log as a table."""
        table = Table(title="the release log (kubectl get adapterreleases)")
        for column in ("entry", "action", "reason", "verdict", "candidate", "serves", "digest"):
            table.add_column(column)
        for release in self.stage.releases():
            spec = release["spec"]
            serves = spec.get("serves") or {}
            table.add_row(
                release["metadata"]["name"],
                spec["action"],
                spec["reason"],
                spec.get("verdict", ""),
                (spec.get("candidate") or {}).get("name", ""),
                serves.get("adapter") or ("the base" if serves.get("base") else ""),
                spec["digest"][7:19],
            )
        return table

    def summary(self) -> Table:
        """The learning curve and the verdicts."""
        table = Table(title="what happened (held-out accuracy: a set that neither trainer nor gate sees)")
        for column in ("candidate", "recipe", "scores", "state", "reason", "held-out after"):
            table.add_column(column)
        curve = [*self.outcome.curve[1:], *([None] * len(self.outcome.verdicts))]
        table.add_row("(the base)", "", "", "", "", _percent(self.outcome.curve[0]))
        for row, accuracy in zip(self.outcome.verdicts, curve, strict=False):
            table.add_row(row["candidate"], row["recipe"], row["scores"], row["state"], row["reason"], _percent(accuracy))
        return table


def _percent(accuracy: float | None) -> str:
    return "" if accuracy is None else f"{100 * accuracy:.1f} %"


def _decided(status: dict[str, Any]) -> str:
    return next((entry["reason"] for entry in status.get("conditions", []) if entry["type"] == "Decided"), "")
