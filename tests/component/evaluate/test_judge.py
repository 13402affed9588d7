"""A judge as scorer, by protocol: what its endpoint may answer, refuse or break off, and what evidence is made of it."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest
from aiohttp import web

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.exits import ExitCode
from gatevalve.contracts.files import SCORE_ONE, Arm, EvidenceReport, JudgeFact, PairRow
from gatevalve.contracts.jobs import EvaluateInput
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve_trainer.errors import BackendUnavailable, Terminated
from gatevalve_trainer.evaluate.engine import Replies, Reply
from gatevalve_trainer.evaluate.judge import Judges, open_judges
from gatevalve_trainer.evaluate.judge_identity import check_judge
from gatevalve_trainer.evaluate.main import run
from gatevalve_trainer.evaluate.patience import Patience
from gatevalve_trainer.main import run_step
from gatevalve_trainer.store import Area
from support.chat_engine import Body, ChatEngine, completion, question_of
from support.evaluation import REGRESSION, SEAL, SPLIT, job, policy, write_suites
from support.scripted_judge import (
    CANARIES,
    JUDGE,
    Answer,
    Pair,
    ScriptedJudge,
    always,
    canary_file,
    judge_of,
    merit,
    prefers,
    said,
    write_canaries,
)

pytestmark = pytest.mark.component

SOON = Patience(engine=0.5, poll=0.05, request=5, judge=30, tries=3, first_pause=0.01)
EVEN = SCORE_ONE // 2
HONEST = prefers(merit)
NOWHERE = "http://127.0.0.1:9/v1"


@pytest.fixture(autouse=True)
def _files(tmp_path: Path) -> None:
    write_suites(tmp_path)
    write_canaries(tmp_path)


def judged(url: str, *names: str, **changes: Any) -> GatePolicySpec:
    """The policy of tests with a judge in place of the verifiers of some suites."""
    suites = []
    for suite in policy().wire()["suites"]:
        if suite["name"] in (names or ("regression",)):
            suite = {key: value for key, value in suite.items() if key != "verifier"} | {"judge": judge_of(url, **changes)}
        suites.append(suite)
    return policy(suites=suites)


T = TypeVar("T")


def with_judges(work: EvaluateInput, use: Callable[[Judges], Awaitable[T]], patience: Patience = SOON) -> T:
    """What `use` makes of a test's judges, opened as the evaluation opens them."""

    async def opened() -> T:
        async with aiohttp.ClientSession() as session:
            return await use(await open_judges(work, session, patience, Area(work.data)))

    return asyncio.run(opened())


def replies(*texts: str | None) -> Replies:
    return tuple(None if text is None else Reply(text, "stop", (), (1,)) for text in texts)


GIVEN: dict[Arm, Replies] = {
    "candidate": replies("worth 9", "worth 1", "worth 5", "worth 5", None, "worth 9"),
    "incumbent": replies("worth 5", "worth 5", "worth 5", "valued 5", "worth 5", None),
    "anchor": replies("worth 1", "worth 9", "worth 5", "worth 5", "worth 9", "worth 9"),
}


def scored(root: Path, answer: Answer, given: dict[Arm, Replies] = GIVEN, **cards: Any) -> tuple[dict[Arm, Any], ScriptedJudge]:
    """The scores that a judge gives the replies to one item, and the judge."""
    with ScriptedJudge(answer, **cards) as judge:
        work = job(root, policy=judged(judge.root))
        suite, item = work.policy.suites[1], REGRESSION[0]
        return dict(with_judges(work, lambda judges: judges.by_suite["regression"].score(suite, item, given))), judge


def facts(root: Path, answer: Answer, **changes: Any) -> JudgeFact:
    """How a judge did on the canaries."""

    async def of(judges: Judges) -> JudgeFact:
        return judges.facts(["regression"])[0]

    with ScriptedJudge(answer) as judge:
        return with_judges(job(root, policy=judged(judge.root, **changes)), of)


# ---- scores


def test_each_reply_is_scored_against_the_incumbents_to_the_same_decode(tmp_path: Path) -> None:
    scores, _ = scored(tmp_path, HONEST)
    assert scores == {
        "candidate": (SCORE_ONE, 0, EVEN, EVEN, None, None),
        "incumbent": (EVEN, EVEN, EVEN, EVEN, EVEN, None),
        "anchor": (0, SCORE_ONE, EVEN, EVEN, SCORE_ONE, None),
    }


def test_pairs_are_asked_in_both_orders_at_temperature_0_and_equal_texts_not_at_all(tmp_path: Path) -> None:
    _, judge = scored(tmp_path, HONEST)
    asked = [(pair.a, pair.b) for pair in judge.pairs if "worth" in pair.a]
    wanted = [("worth 9", "worth 5"), ("worth 1", "worth 5"), ("worth 5", "valued 5")]
    assert sorted(set(asked)) == sorted({*wanted, *((b, a) for a, b in wanted if "valued" not in b)})
    assert len([pair for pair in judge.pairs if "banana" not in pair.a + pair.b]) == 2 * 7
    assert {(body["temperature"], body["model"]) for body in judge.asked} == {(0, JUDGE)}


def test_a_screens_two_arms_are_scored_like_three(tmp_path: Path) -> None:
    scores, _ = scored(tmp_path, HONEST, {"candidate": replies("worth 9"), "incumbent": replies("worth 5")})
    assert scores == {"candidate": (SCORE_ONE,), "incumbent": (EVEN,)}


def test_a_judge_that_goes_by_the_place_gives_only_ties_and_fails_its_canaries(tmp_path: Path) -> None:
    for word in ("A", "B"):
        scores, _ = scored(tmp_path, always(word))
        assert {score for given in scores.values() for score in given} == {EVEN, None}
        assert facts(tmp_path, always(word)).right == 0


# ---- canaries


def test_canaries_that_come_out_right_in_both_orders_are_counted(tmp_path: Path) -> None:
    assert facts(tmp_path, HONEST) == JudgeFact(suite="regression", model=JUDGE, prompt=1, canaries=20, right=20)


def test_a_canary_right_in_one_order_only_is_not_right(tmp_path: Path) -> None:
    def biased(pair: Pair) -> str:
        return "A" if CANARIES[3].worse in (pair.a, pair.b) else str(HONEST(pair))

    assert facts(tmp_path, biased).right == 19


def test_suites_with_one_judge_share_it_and_its_canaries_and_the_screen_is_scored_by_the_primarys(tmp_path: Path) -> None:
    async def of(judges: Judges) -> tuple[set[str], list[tuple[str, int]]]:
        assert judges.by_suite["target"] is judges.by_suite["regression"] is judges.by_suite["screen"]
        return set(judges.by_suite), [(fact.suite, fact.right) for fact in judges.facts(["screen", "target", "manners", "regression"])]

    with ScriptedJudge(HONEST) as judge:
        both = judged(judge.root, "target", "regression").wire() | {"futility": {"items": 30, "alphaBasisPoints": 5000}}
        names, right = with_judges(job(tmp_path, policy=GatePolicySpec.parse(both)), of)
        assert len(judge.pairs) == 2 * 20
    assert (names, right) == ({"target", "regression", "screen"}, [("screen", 20), ("target", 20), ("regression", 20)])


def test_a_policy_without_a_judge_opens_none(tmp_path: Path) -> None:
    async def of(judges: Judges) -> tuple[int, int]:
        return len(judges.by_suite), len(judges.facts(["target"]))

    assert with_judges(job(tmp_path), of) == (0, 0)


FILES: dict[str, tuple[bytes, str]] = {
    "too few": (canary_file(CANARIES[:19]), "holds 19 pairs; give at least 20"),
    "an id twice": (canary_file((*CANARIES, CANARIES[0])), "holds an id twice"),
    "equal replies": (
        canary_file().replace(CANARIES[3].worse.encode(), CANARIES[3].better.encode()),
        "line 4.*better and worse must differ",
    ),
    "no messages": (canary_file() + b'{"id": "x", "messages": [], "better": "a", "worse": "b"}\n', "line 21.*messages"),
    "no JSON": (canary_file() + b"oops\n", "line 21"),
}


@pytest.mark.parametrize(("data", "says"), FILES.values(), ids=FILES)
def test_canaries_that_are_none_name_the_suite_before_anything_is_asked(data: bytes, says: str, tmp_path: Path) -> None:
    write_canaries(tmp_path, data)
    named = {"canaries": {"uri": "suites/canaries.jsonl", "digest": sha256(data)}}
    with pytest.raises(ContractError, match=rf"suite regression\.judge\.canaries.*{says}"):
        facts(tmp_path, HONEST, **named)


def test_canaries_with_another_digest_are_refused(tmp_path: Path) -> None:
    write_canaries(tmp_path, canary_file(CANARIES[1:]))
    with pytest.raises(ContractError, match=r"suite regression\.judge\.canaries\.digest"):
        facts(tmp_path, HONEST)


# ---- garbage, refusals, outage


def only_of_replies(answer: Answer) -> Answer:
    """Honest on canaries, scripted on everything else."""
    return lambda pair: HONEST(pair) if "better by" in pair.a else answer(pair)


GARBAGE: dict[str, Answer] = {
    "words that are no choice": always("I cannot say."),
    "an empty text": always(""),
    "no JSON": lambda pair: web.Response(text="oops"),
    "no choices": lambda pair: web.json_response({"choices": []}),
    "a content that is no text": lambda pair: web.json_response({"choices": [{"message": {"content": None}}]}),
    "a list": lambda pair: web.json_response([1]),
    "JSON nested too deep": lambda pair: web.Response(text="[" * 100_000),
    "bytes in no charset": lambda pair: web.Response(body=b"\xff", headers={"Content-Type": "text/plain; charset=nonsense"}),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_asked_once_more_and_then_no_score_and_never_a_tie(garbage: Answer, tmp_path: Path) -> None:
    pair: dict[Arm, Replies] = {"candidate": replies("worth 9"), "incumbent": replies("worth 5")}
    scores, judge = scored(tmp_path, only_of_replies(garbage), pair)
    assert scores == {"candidate": (None,), "incumbent": (EVEN,)}
    assert [(seen.a, seen.b) for seen in judge.pairs].count(("worth 9", "worth 5")) == 2
    assert facts(tmp_path, garbage).right == 0


def test_an_unreadable_answer_followed_by_a_readable_one_counts(tmp_path: Path) -> None:
    asked: set[tuple[str, str]] = set()

    def second_time(pair: Pair) -> str | web.StreamResponse:
        known = (pair.a, pair.b) in asked
        asked.add((pair.a, pair.b))
        return HONEST(pair) if known else "Hm."

    scores, _ = scored(tmp_path, second_time)
    assert scores["candidate"][:2] == (SCORE_ONE, 0)


def about(text: str, answer: Answer) -> Answer:
    """Scripted where a text is compared, honest elsewhere."""
    return lambda pair: answer(pair) if text in (pair.a, pair.b) else HONEST(pair)


def status(code: int, **headers: str) -> Answer:
    return lambda pair: web.Response(status=code, headers=headers)


@pytest.mark.parametrize("code", [400, 403, 404, 413, 422, 307, 500, 502])
def test_a_refusal_of_one_request_is_no_score_of_that_decode_alone(code: int, tmp_path: Path) -> None:
    scores, _ = scored(tmp_path, about("worth 9", status(code)))
    assert scores["candidate"] == (None, 0, EVEN, EVEN, None, None)


@pytest.mark.parametrize("code", [429, 503])
def test_an_overload_that_lasts_is_no_missing_score_though_the_canary_is_answered(code: int, tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match=f"HTTP {code}"):
        scored(tmp_path, about("worth 9", status(code)))


@pytest.mark.parametrize("code", [429, 500, 502, 503])
def test_a_request_that_fails_twice_is_tried_until_it_is_answered(code: int, tmp_path: Path) -> None:
    left = {"fails": 2}

    def twice(pair: Pair) -> str | web.StreamResponse:
        left["fails"] -= 1
        return web.Response(status=code) if left["fails"] >= 0 else HONEST(pair)

    scores, _ = scored(tmp_path, about("worth 9", twice))
    assert scores["candidate"][0] == SCORE_ONE


def hang_up(pair: Pair) -> web.StreamResponse:
    raise asyncio.CancelledError


OUTAGES: dict[str, Answer] = {**{f"HTTP {code}": status(code) for code in (400, 401, 403, 404, 429, 500, 503)}, "hangs up": hang_up}


@pytest.mark.parametrize("answer", OUTAGES.values(), ids=OUTAGES)
def test_an_outage_is_a_backend_error_and_no_score(answer: Answer, tmp_path: Path) -> None:
    out = {"now": False}

    def until_then(pair: Pair) -> str | web.StreamResponse:
        out["now"] |= "worth" in pair.a
        return answer(pair) if out["now"] else HONEST(pair)

    with pytest.raises(BackendUnavailable, match=r"judge http://127.0.0.1:.*/v1: .*goes on from the journal"):
        scored(tmp_path, until_then)


def test_an_endpoint_that_nobody_serves_is_a_backend_error(tmp_path: Path) -> None:
    async def nothing(judges: Judges) -> None: ...

    with pytest.raises(BackendUnavailable, match="ClientConnectorError"):
        with_judges(job(tmp_path, policy=judged(NOWHERE), engine_url="http://127.0.0.1:8471"), nothing)


def test_an_overloaded_endpoint_is_waited_for_as_long_as_it_asks(tmp_path: Path) -> None:
    times: list[float] = []

    def busy_once(pair: Pair) -> str | web.StreamResponse:
        times.append(asyncio.get_running_loop().time())
        return web.Response(status=429, headers={"Retry-After": "1"}) if len(times) == 1 else HONEST(pair)

    given: dict[Arm, Replies] = {"candidate": replies("worth 9"), "incumbent": replies("worth 5")}
    scores, _ = scored(tmp_path, lambda pair: busy_once(pair) if pair.a == "worth 9" else HONEST(pair), given)
    assert scores["candidate"] == (SCORE_ONE,)
    assert times[1] - times[0] >= 1


# ---- the key


def test_the_key_goes_with_every_request_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GATEVALVE_JUDGE_API_KEY", "sesame\n")
    _, judge = scored(tmp_path, HONEST)
    assert set(judge.keys) == {"Bearer sesame"}
    assert all("sesame" not in str(body) for body in judge.asked)
    assert not {"sesame", "worth", "banana"} & set("".join(capfd.readouterr()).split())


def test_without_a_key_none_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEVALVE_JUDGE_API_KEY", "")
    assert set(scored(tmp_path, HONEST)[1].keys) == {None}


def test_a_key_that_no_header_may_hold_is_refused_and_not_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEVALVE_JUDGE_API_KEY", "open\nsesame")
    with pytest.raises(ContractError, match=r"GATEVALVE_JUDGE_API_KEY.*mend api-key in Secret gatevalve-judge") as refused:
        scored(tmp_path, HONEST)
    assert "sesame" not in str(refused.value)


def test_a_key_that_is_refused_says_where_it_is_mended_and_is_not_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEVALVE_JUDGE_API_KEY", "sesame")
    with pytest.raises(BackendUnavailable, match="HTTP 401, mend api-key in Secret gatevalve-judge") as refused:
        scored(tmp_path, status(401))
    assert "sesame" not in str(refused.value)


def test_a_redirect_takes_neither_items_nor_key_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEVALVE_JUDGE_API_KEY", "sesame")
    with ScriptedJudge(HONEST) as elsewhere:
        with pytest.raises(BackendUnavailable, match="HTTP 307"):
            scored(tmp_path, status(307, Location=f"{elsewhere.root}/chat/completions"))
        assert (elsewhere.asked, elsewhere.keys) == ([], [])


# ---- a judge is never what it judges


NAMED: dict[str, tuple[dict[str, str], str]] = {
    "the base": ({"model": "tiny-words"}, "model: tiny-words is what is judged; name a model"),
    "a url without a host": ({"url": "http://:80/v1"}, "url: must name a host"),
    "a url with a query": ({"url": "http://judge/v1?a=b"}, "url: must name a host, and no user, query"),
    "a url with a password": ({"url": "http://me:secret@judge/v1"}, "url: must name a host, and no user"),
    "a url with a port that is none": ({"url": "http://judge:x/v1"}, "url: cannot be read"),
}


@pytest.mark.parametrize(("changes", "says"), NAMED.values(), ids=NAMED)
def test_what_a_policy_tells_is_refused_before_anything_is_paid(changes: dict[str, str], says: str) -> None:
    with pytest.raises(ContractError, match=rf"suite regression\.judge\.{says}"):
        check_judge(judged(**{"url": "http://judge/v1"} | changes), "tiny-words")


def test_a_judge_of_another_name_passes() -> None:
    check_judge(judged("http://judge/v1"), "tiny-words")
    check_judge(policy(), "tiny-words")


@pytest.mark.parametrize("arm", ["support-cccccccc", "support-bbbbbbbb", "tiny-words"])
def test_a_judge_that_is_an_arm_is_refused(arm: str, tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=rf"suite regression\.judge\.model: {arm} is what is judged"):
        facts(tmp_path, HONEST, model=arm)


ENGINES = {
    "its own address": "http://127.0.0.1:8471/v1",
    "another root": "http://127.0.0.1:8471/other",
    "localhost": "http://localhost:8471/v1",
    "a capital and a dot": "http://LOCALHOST.:8471/v1",
    "another loopback address": "http://127.0.0.9:8471/v1",
    "version 6": "http://[::1]:8471/v1",
    "version 4 in version 6": "http://[::ffff:127.0.0.1]:8471/v1",
    "every address": "http://0.0.0.0:8471/v1",
}


@pytest.mark.parametrize("url", ENGINES.values(), ids=ENGINES)
def test_a_judge_that_is_the_evaluation_engine_is_refused(url: str, tmp_path: Path) -> None:
    async def nothing(judges: Judges) -> None: ...

    with pytest.raises(ContractError, match=r"suite regression\.judge\.url: is the evaluation engine"):
        with_judges(job(tmp_path, policy=judged(url), engine_url="http://127.0.0.1:8471"), nothing)


SERVED: dict[str, tuple[tuple[dict[str, Any], ...], str]] = {
    "the base": (({"id": JUDGE}, {"id": "tiny-words"}), "url: serves tiny-words, which is judged"),
    "an arm": (({"id": JUDGE}, {"id": "support-cccccccc"}), "url: serves support-cccccccc, which is judged"),
    "the base's files under another name": (({"id": JUDGE, "root": "/models/tiny-words"},), "url: serves /models/tiny-words"),
    "an adapter on the base under another name": (({"id": JUDGE, "parent": "tiny-words"},), "url: serves tiny-words"),
    "other models only": (({"id": "other"},), f"model: .* does not serve {JUDGE}; name one that it lists: other"),
    "no models": ((), f"model: .* does not serve {JUDGE}; name one that it lists: none"),
}


@pytest.mark.parametrize(("models", "says"), SERVED.values(), ids=SERVED)
def test_an_endpoint_that_serves_what_is_judged_or_not_the_judge_is_asked_nothing(
    models: tuple[dict[str, Any], ...], says: str, tmp_path: Path
) -> None:
    with pytest.raises(ContractError, match=rf"suite regression\.judge\.{says}"):
        scored(tmp_path, HONEST, models=models)


def test_an_alias_that_moves_with_releases_is_no_judge(tmp_path: Path) -> None:
    def alias(pair: Pair) -> web.StreamResponse:
        answer = said("A")
        answer.headers["x-gatevalve-release"] = "support-000003"
        return answer

    with pytest.raises(ContractError, match=r"suite regression\.judge\.model: judge-70b is an alias that moves with releases"):
        scored(tmp_path, alias)


def test_a_url_that_is_no_endpoints_root_names_the_field(tmp_path: Path) -> None:
    async def nothing(judges: Judges) -> None: ...

    says = r"suite regression\.judge\.url: .*/models answers HTTP 404; give the endpoint's root"
    with ScriptedJudge(HONEST) as judge, pytest.raises(ContractError, match=says):
        with_judges(job(tmp_path, policy=judged(judge.url)), nothing)


# ---- a whole evaluation

MODELS = ("tiny-words", "support-bbbbbbbb", "support-cccccccc")
WORTH = {"support-cccccccc": "worth 9", "support-bbbbbbbb": "worth 5", "tiny-words": "worth 1"}
EVIDENCE = "sealed/channel-uid/evidence/support-000007"


async def worth(body: Body, before: int) -> web.StreamResponse:
    """Replies that differ from arm to arm and from item to item."""
    return completion(
        [f"{WORTH[body['model']]} for {question_of(body)[1].translate(NO_DIGITS)}, {decode}th" for decode in range(body["n"])]
    )


NO_DIGITS = {ord(digit): None for digit in "0123456789"}


def evaluated(root: Path, answer: Answer, **changes: Any) -> tuple[EvidenceReport, list[PairRow]]:
    """The evidence of a whole evaluation whose Primary and Guard are judged."""
    with ChatEngine(MODELS, worth) as engine, ScriptedJudge(answer) as judge:
        run(work_of(root, engine, judge, **changes), SOON)
    raw = gzip.decompress((root / EVIDENCE / "pairs.jsonl.gz").read_bytes())
    report = EvidenceReport.parse_json((root / EVIDENCE / "report.json").read_bytes())
    return report, [PairRow.parse_json(line) for line in raw.splitlines()]


def work_of(root: Path, engine: ChatEngine, judge: ScriptedJudge, *suites: str, **changes: Any) -> EvaluateInput:
    spec = judged(judge.root, *(suites or ("target", "regression"))).wire() | changes
    return job(root, engine_url=engine.url, policy=GatePolicySpec.parse(spec))


@pytest.fixture
def _seals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEVALVE_SEAL_SEED", SEAL.hex())
    monkeypatch.setenv("GATEVALVE_SPLIT_KEY", SPLIT.hex())


def seen(rows: list[PairRow], arm: Arm, *suites: str) -> set[tuple[int | None, ...]]:
    return {row.scores[arm] for row in rows if row.suite in suites}


whole = pytest.mark.usefixtures("_seals")


@whole
def test_a_candidate_better_in_both_orders_wins_everywhere(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    report, rows = evaluated(tmp_path, HONEST)
    assert {row.suite for row in rows} == {"target", "regression", "manners"}
    wanted: dict[Arm, int] = {"candidate": SCORE_ONE, "incumbent": EVEN, "anchor": 0}
    for arm, score in wanted.items():
        assert seen(rows, arm, "target", "regression") == {(score,) * 3, (score,)}
    assert [(fact.suite, fact.canaries, fact.right) for fact in report.judges] == [("target", 20, 20), ("regression", 20, 20)]
    spoken = "".join(capfd.readouterr())
    assert "worth" not in spoken
    assert "Last of" not in spoken


@whole
def test_a_judge_that_goes_by_the_place_leaves_only_ties_and_a_report_that_tells(tmp_path: Path) -> None:
    report, rows = evaluated(tmp_path, always("A"))
    assert seen(rows, "candidate", "target", "regression") == {(EVEN,) * 3, (EVEN,)}
    assert [(fact.suite, fact.right) for fact in report.judges] == [("target", 0), ("regression", 0)]


@whole
def test_garbage_leaves_missing_answers_and_a_reason(tmp_path: Path) -> None:
    _, rows = evaluated(tmp_path, only_of_replies(always("Well.")))
    judged_rows = [row for row in rows if row.suite != "manners"]
    assert {score for row in judged_rows for score in (*row.scores["candidate"], *row.texts["candidate"])} == {None}
    assert {failure for row in judged_rows for failure in row.failures["candidate"]} == {"Verifier"}


@whole
def test_a_hopeless_candidate_ends_at_the_judged_screen(tmp_path: Path) -> None:
    report, rows = evaluated(tmp_path, prefers(lambda text: -merit(text)), futility={"items": 30, "alphaBasisPoints": 5000})
    assert (report.stage, {row.suite for row in rows}, seen(rows, "candidate", "screen")) == ("Screen", {"screen"}, {(0, 0, 0)})
    assert [fact.suite for fact in report.judges] == ["screen"]


def goes_away_after(answered: int) -> Answer:
    """Honest on canaries and on so many pairs; then nothing but 503."""
    left = {"pairs": answered}

    def answer(pair: Pair) -> str | web.StreamResponse:
        if "better by" not in pair.a:
            left["pairs"] -= 1
        return HONEST(pair) if left["pairs"] >= 0 else web.Response(status=503)

    return answer


@whole
def test_a_judge_that_goes_away_is_exit_15_and_the_next_attempt_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatevalve_trainer.evaluate.main.Patience", lambda: SOON)
    with ChatEngine(MODELS, worth) as engine, ScriptedJudge(goes_away_after(100)) as judge:
        work = work_of(tmp_path, engine, judge)
        monkeypatch.setenv("GATEVALVE_JOB", work.model_dump_json(by_alias=True, exclude_none=True))
        ending = run_step("evaluate")
        assert (ending.exit_code, ending.reason) == (ExitCode.BACKEND_UNAVAILABLE, "BackendUnavailable")
        assert "HTTP 503; the next attempt goes on from the journal" in ending.message
        journalled = {line["suite"] + line["item"] for line in journal(tmp_path)}
        assert journalled
        judge.answer = HONEST
        judge.pairs.clear()
        result = run(work, SOON)
        again = sum("better by" not in pair.a for pair in judge.pairs)
        write_suites(tmp_path / "whole")
        write_canaries(tmp_path / "whole")
        assert run(work_of(tmp_path / "whole", engine, judge), SOON) == result
    assert again <= 2 * 2 * (40 * 3 + 30 - len(journalled))


def journal(root: Path) -> list[dict[str, Any]]:
    lines = (root / EVIDENCE / "partial.jsonl").read_bytes().splitlines()[1:]
    return [json.loads(line.partition(b" ")[2]) for line in lines]


def quotes(code: int) -> Answer:
    """A judge that quotes what it was asked, as endpoints do in their errors."""
    return lambda pair: web.json_response({"error": {"message": pair.a + pair.b}}, status=code, reason=pair.a[:40])


@whole
@pytest.mark.parametrize("code", [200, 400, 401, 503])
def test_nothing_of_replies_or_key_leaves_the_pod_when_the_judge_quotes_them(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gatevalve_trainer.evaluate.main.Patience", lambda: SOON)
    monkeypatch.setenv("GATEVALVE_JUDGE_API_KEY", "sesame")
    with ChatEngine(MODELS, worth) as engine, ScriptedJudge(only_of_replies(quotes(code))) as judge:
        work = work_of(tmp_path, engine, judge, "regression")
        monkeypatch.setenv("GATEVALVE_JOB", work.model_dump_json(by_alias=True, exclude_none=True))
        ending = run_step("evaluate")
    spoken = ending.canonical().decode() + "".join(capfd.readouterr())
    assert not [text for text in ("worth", "sesame", "Last of", "better by") if text in spoken]


class SilentJudge(ScriptedJudge):
    """Takes every comparison and answers none."""

    async def _script(self, body: Body, before: int) -> web.StreamResponse:
        await asyncio.sleep(3600)
        return said("A")


def test_an_evaluation_told_to_stop_does_not_wait_for_a_judge_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop() -> None:
        raise Terminated("told to stop")

    async def nothing(judges: Judges) -> None: ...

    monkeypatch.setattr("gatevalve_trainer.evaluate.judge.heed_stop", stop)
    with SilentJudge(HONEST) as judge, pytest.raises(Terminated):
        with_judges(job(tmp_path, policy=judged(judge.root)), nothing)
