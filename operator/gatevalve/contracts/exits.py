"""Exit codes of Job containers: what a Job says to the operator when it ends."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of `gatevalve-trainer`; each has a sentence and one reaction in `gatevalve.decide.attempts`."""

    sentence: str

    def __new__(cls, value: int, sentence: str) -> ExitCode:
        """Keep the sentence beside the value."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.sentence = sentence
        return member

    DONE = (0, "The step is done and its result is published.")
    CONTRACT = (10, "An input breaks its contract (digest, shape, schema, limit); trying again cannot help.")
    NO_SIGNAL = (11, "There is nothing to learn: too few rows or no spread in the rewards; the candidate is Skipped.")
    DIVERGED = (12, "Training diverged: losses or weights are not finite; the candidate is rejected without a test.")
    REPLAY_MISMATCH = (13, "Logged log-probabilities do not replay on the producing adapter: capture is broken, page someone.")
    OUT_OF_MEMORY = (14, "The step ran out of memory; it is tried once more with half the token budget.")
    BACKEND_UNAVAILABLE = (15, "An engine or another backend does not answer; the step is tried again after a pause.")
    ITEM_SUPPLY = (16, "There are too few fresh items for a round; the candidate waits for more.")
    TERMINATED = (143, "The Pod was told to stop (SIGTERM); the step resumes in a new attempt.")
