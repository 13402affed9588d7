"""Thresholds that policies of tests share: those of the demo, without screen and sentinels, which tests of them switch on."""

from __future__ import annotations

from typing import Any

THRESHOLDS: dict[str, Any] = {
    "futility": {"items": 0, "alphaBasisPoints": 5000},
    "guardAlphaBasisPoints": 100,
    "behaviour": {
        "lengthRatioPercent": {"min": 70, "max": 135},
        "maxGainByLengthPercent": 1000,
        "maxRepetitionBasisPoints": 500,
        "maxTruncationBasisPoints": 500,
        "minDiversityPercent": 75,
        "maxKlMillinatsPerToken": 500,
        "maxAnchorKlMillinatsPerToken": 2000,
        "maxFormatShiftBasisPoints": 500,
        "maxJudgeTextBasisPoints": 50,
        "maxAvoidanceBasisPoints": 200,
        "maxExcessNegativeFlipBasisPoints": 500,
    },
    "sentinels": {"everyCandidates": 0},
    "evidence": {"maxMissingBasisPoints": 100, "minClusters": 30},
}
"""Everything of a policy's spec but its suites and its round."""
