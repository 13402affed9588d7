"""The gate: a pure, deterministic verdict from a policy, the evidence of one test and what the log says."""
