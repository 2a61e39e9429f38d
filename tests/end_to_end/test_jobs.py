"""`perfgate check` of jobs: a command and a server, slower and not, and in every way that they fail."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import Clone, Perfgate
from tests.waiting import left_in_the_end, wait_until

DATA = Path(__file__).parents[1] / "data" / "jobs"
ROOT = Path(__file__).parents[2]
# Its numbers are drawn around what the project says, so that no busy machine decides for the test.
PROGRAM = """
import json, random, sys
from step import SECONDS
print("warming up")
print(json.dumps({"step": {"ms": SECONDS * random.gauss(1, 0.01) * 1000}, "tokens": 1000 / SECONDS}))
"""
COMMAND = """
project = "jobs"
[workloads.bench]
command = "python bench.py"
numbers.step = { json = "step.ms", unit = "ms", tolerance = 0.05 }
"""
SERVER = """
project = "jobs"
[workloads.chat]
serve = "exec python fake_server.py $PORT"
ready_timeout = 6
timeout = 3
model = "fake"
budget = 60
load = { concurrency = 2, requests = 2, input = 4, output = 4 }
"""
# Where times are not what a test is about: the first look ends it, and on a busy machine there is time until then.
SOON_DECIDED = SERVER.replace("[workloads", "[gate]\nok_margin = 0.9\n[workloads").replace(
    "budget = 60", "budget = 300"
)


def project(clone: Clone, settings: str, **files: str) -> None:
    """Put files on main beside the settings."""
    clone.git("checkout", "-q", "main")
    (clone.root / "perfgate.toml").write_text(settings)
    for name, text in files.items():
        (clone.root / name.replace("__", ".")).write_text(text)
    clone.git("rm", "-rq", "perf", "model.py")
    clone.commit("a job")
    clone.git("checkout", "-q", "-B", "feature")


def change(clone: Clone, name: str, text: str) -> None:
    (clone.root / name).write_text(text)
    clone.git("add", "--all")
    clone.git("commit", "-qm", "a change")


def decision(clone: Clone) -> dict[str, Any]:
    return dict(json.loads((clone.root / "perfgate-out" / "decision.json").read_text()))


def check(perfgate: Perfgate, clone: Clone, *options: str) -> Any:
    # Only a server imports from these tests; with a path of its own, a command starts Python anew.
    imports = {"PYTHONPATH": str(ROOT)} if (clone.root / "fake_server.py").exists() else {}
    return perfgate("check", "--base", "main", *options, cwd=clone.root, **imports)


@pytest.mark.parametrize(
    ("seconds", "code", "verdict"),
    [("0.0130", 1, "FAIL"), pytest.param("0.01 + 0.0", 0, "PASS", marks=pytest.mark.slow)],
)
def test_command__its_number_by_name(perfgate: Perfgate, clone: Clone, seconds: str, code: int, verdict: str) -> None:
    project(clone, COMMAND, bench__py=PROGRAM, step__py="SECONDS = 0.01\n")
    change(clone, "step.py", f"SECONDS = {seconds}\n")
    done = check(perfgate, clone)
    assert (done.returncode, decision(clone)["verdict"]) == (code, verdict), done.stdout + done.stderr
    assert "bench: 10 to 64 runs of each side, at most 6.0 min; a slowdown of 5.0% is tolerated" in done.stderr
    assert re.search(
        r"bench: at most \d+ runs of each side in [\d.]+ min; a slowdown of [\d.]+% would show", done.stderr
    )
    if verdict == "FAIL":
        assert re.search(r"^FAIL +step +.*\n +bench\b", done.stdout, re.MULTILINE)
        (regression,) = decision(clone)["explained"]["regressions"]
        # A cause that the samples of the Python stack show is the heading instead.
        assert regression["causes"] or "1. step of bench" in done.stdout
        comment = (clone.root / "perfgate-out" / "comment.md").read_text()
        assert " perfgate: FAIL – `step` " in comment
        assert "perfgate baseline accept 1 --from " in comment
        assert [one["accepts"] for one in decision(clone)["explained"]["regressions"]] == [["number.step"]]
    (row,) = [one for one in decision(clone)["comparisons"] if one["metric"] == "number.step"]
    assert (row["kind"], row["evidence"], row["unit"]) == ("paired", "quad", "s")
    assert perfgate.processes() == []


@pytest.mark.parametrize(
    ("program", "words"),
    [
        pytest.param("raise SystemExit(3)", "`python bench.py` exited with code 3", marks=pytest.mark.slow),
        pytest.param(
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            "`python bench.py` was killed by SIGSEGV",
            marks=pytest.mark.slow,
        ),
        pytest.param("print('no numbers')", "no line of the output is a JSON object", marks=pytest.mark.slow),
        pytest.param(
            'print(\'{"step": {"ms": NaN}}\')', "number step is nan, not a valid measurement", marks=pytest.mark.slow
        ),
        pytest.param("print('{\"step\": 1}')", "the JSON has no step.ms", marks=pytest.mark.slow),
    ],
)
def test_command__of_the_head_fails__exit_4_with_its_own_sentence(
    perfgate: Perfgate, clone: Clone, program: str, words: str
) -> None:
    project(clone, COMMAND, bench__py=PROGRAM, step__py="SECONDS = 0.01\n")
    change(clone, "bench.py", program)
    done = check(perfgate, clone)
    assert (done.returncode, decision(clone)["verdict"]) == (4, "INCONCLUSIVE"), done.stdout + done.stderr
    assert words in " ".join(done.stdout.split())


@pytest.mark.slow
def test_command__stale_file__is_no_result_of_this_run(perfgate: Perfgate, clone: Clone) -> None:
    settings = COMMAND.replace("numbers.step", 'file = "out.json"\nnumbers.step')
    project(clone, settings, bench__py="print('nothing')", out__json='{"step": {"ms": 10}}', step__py="SECONDS = 1\n")
    change(clone, "step.py", "SECONDS = 2\n")
    done = check(perfgate, clone)
    assert done.returncode == 4
    assert "out.json is older than this run of the program" in " ".join(done.stdout.split())


@pytest.mark.slow
def test_run__a_job_alone__its_numbers_are_kept_for_mains_history(perfgate: Perfgate, clone: Clone) -> None:
    project(clone, COMMAND, bench__py=PROGRAM, step__py="SECONDS = 0.01\n")
    clone.git("checkout", "-q", "main")
    recorded = perfgate("baseline", "record", "--quick", cwd=clone.root)
    assert recorded.returncode == 0, recorded.stdout + recorded.stderr
    (kept,) = re.findall(r"kept run (\w+)", recorded.stdout)
    listed = perfgate("baseline", "show", kept, cwd=clone.root)
    assert "number.step" in listed.stdout
    assert "command.cpu" in listed.stdout
    run = perfgate("run", cwd=clone.root)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "(5 turns)" in run.stdout
    (clone.root / "bench.py").write_text("raise SystemExit(3)")
    broken = perfgate("run", cwd=clone.root)
    assert broken.returncode == 4
    assert "exited with code 3" in " ".join(broken.stdout.split())


@pytest.mark.slow
def test_upgrade__same_commit_on_another_installation__its_slowdown_is_named(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    """The new stack has a library that makes the program slower; everything else is ours, as in an image built on another."""
    venv.create(tmp_path / "new", with_pip=False)
    packages = next((tmp_path / "new" / "lib").glob("python*")) / "site-packages"
    (packages / "ours.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    (packages / "stack.py").write_text("FACTOR = 1.3\n")
    stack = "try:\n    from stack import FACTOR\nexcept ImportError:\n    FACTOR = 1.0\nSECONDS = 0.01 * FACTOR\n"
    project(clone, COMMAND, bench__py=PROGRAM, step__py=stack)
    python = str(tmp_path / "new" / "bin" / "python")
    done = perfgate("upgrade", "--python", python, "--out", "perfgate-out", cwd=clone.root, PYTHONPATH=str(ROOT))
    assert (done.returncode, decision(clone)["verdict"]) == (0, "WARN"), done.stdout + done.stderr
    assert re.search(r"WARN – upgrade: step [0-9.]+ % slower", done.stdout)


def test_server__equal_code__both_are_loaded_and_nothing_is_left(perfgate: Perfgate, clone: Clone) -> None:
    project(clone, SOON_DECIDED)
    shutil.copy(DATA / "fake_server.py", clone.root)
    change(clone, "fault.txt", "none 0.004\n")
    clone.git("branch", "-f", "main")
    change(clone, "notes.py", "NOTES = 1\n")
    done = check(perfgate, clone)
    found = decision(clone)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    metrics = {one["metric"] for one in found["comparisons"]}
    assert {"serving.tpot", "serving.ttft", "serving.cpu", "serving.throughput", "serving.e2e"} <= metrics
    assert "job.work" not in metrics
    # Loading takes all CPUs that there are, also that of the requests.
    logs = [path.read_text() for path in (clone.root / "perfgate-out").rglob("chat-*.log")]
    assert len(logs) == 2
    assert all(f"starts on {sorted(os.sched_getaffinity(0))}" in log for log in logs)
    assert left_in_the_end(perfgate.processes) == []


REPLAYED = """
project = "jobs"
[workloads.chat]
serve = "exec python cached_server.py $PORT $(cat seconds.txt)"
model = "fake"
budget = 120
load = { concurrency = 2, requests = 4, log = "log.jsonl" }
"""


@pytest.mark.slow
def test_server__prefill_of_a_replayed_log_twice_as_slow__fails_by_the_time_to_first_token(
    perfgate: Perfgate, clone: Clone
) -> None:
    # Its prefix cache has every prompt that it was asked before; it rejects ignore_eos and closes connections.
    project(clone, REPLAYED, seconds__txt="0.0005\n")
    shutil.copy(DATA / "cached_server.py", clone.root)
    lines = [{"at": 0, "prompt": " ".join(f"{line}-{word}" for word in range(120)), "output": 4} for line in range(12)]
    (clone.root / "log.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    clone.git("add", "--all")
    clone.git("commit", "-qm", "a log")
    clone.git("branch", "-f", "main")
    change(clone, "seconds.txt", "0.001\n")
    done = check(perfgate, clone)
    found = decision(clone)
    assert (done.returncode, found["verdict"]) == (1, "FAIL"), done.stdout + done.stderr
    comment = (clone.root / "perfgate-out" / "comment.md").read_text()
    assert re.search(r"perfgate: FAIL – time to first token [0-9.]+ % slower", comment)
    (first_token,) = [one for one in found["comparisons"] if one["metric"] == "serving.ttft"]
    assert first_token["delta"] > 0.5
    assert {"serving.tpot"} & {one["metric"] for one in found["comparisons"] if one["outcome"] == "regressed"} == set()
    base, head = (run["jobs"]["turns"] for run in documents(clone))
    assert {turn["counters"]["cached_tokens"] for turn in (*base, *head)} == {0}
    assert {tuple(turn["without"]) for turn in (*base, *head)} == {("ignore_eos", "keep-alive")}
    for turns in (base, head):
        assert len({turn["requests"] for turn in turns}) == len(turns)
    assert sorted(turn["requests"] for turn in base) == sorted(turn["requests"] for turn in head)
    assert "the server rejects `ignore_eos`" in comment
    assert "the server closes keep-alive connections" in comment
    assert left_in_the_end(perfgate.processes) == []


CLIENT = """
import json, urllib.request
def ask(url, request):
    body = json.dumps({"model": "fake", "prompt": request.prompt, "max_tokens": request.output_tokens}).encode()
    question = urllib.request.Request(url + "/v1/completions", data=body, headers={"X-Request-Id": request.id})
    with urllib.request.urlopen(question) as answer:
        return answer.read().decode()
"""


@pytest.mark.slow
def test_server__asked_by_a_function_of_the_project__whole_requests_are_compared(
    perfgate: Perfgate, clone: Clone
) -> None:
    project(clone, SOON_DECIDED.replace('model = "fake"', 'client = "client.py:ask"'), client__py=CLIENT)
    shutil.copy(DATA / "fake_server.py", clone.root)
    change(clone, "fault.txt", "none 0.004\n")
    clone.git("branch", "-f", "main")
    change(clone, "notes.py", "NOTES = 1\n")
    done = check(perfgate, clone)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    gating = {one["metric"] for one in decision(clone)["comparisons"] if one["gating"]}
    assert gating == {"serving.e2e", "serving.request_cpu"}
    change(clone, "client.py", CLIENT.replace("def ask", "def asks"))
    broken = check(perfgate, clone)
    assert broken.returncode == 4, broken.stdout + broken.stderr
    said = " ".join(broken.stdout.split())
    assert "the function `client.py:ask` cannot be called: its process exited with code 1" in said
    assert "client.py has no function 'ask'; define ask(url, request)" in said
    assert left_in_the_end(perfgate.processes) == []


CHECK = """
import json, os, sys
answers = [json.loads(line)["answer"] for line in open(os.environ["PERFGATE_ANSWERS"])]
if not answers or "broken" in answers[0]:
    sys.exit(7)
print("correct" if all("wrong" not in answer for answer in answers) else "wrong")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "codes", "words"),
    [
        pytest.param("other", (0, 3), "", marks=pytest.mark.slow),
        ("wrong", (1,), "FAIL – chat produces a different output on head"),
        pytest.param(
            "broken",
            (4,),
            "the check `python check.py` exited with code 7 without printing",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_server__answers_are_checked_by_a_program__what_it_prints_decides(
    perfgate: Perfgate, clone: Clone, word: str, codes: tuple[int, ...], words: str
) -> None:
    project(clone, SOON_DECIDED.replace('model = "fake"', 'model = "fake"\ncheck = "python check.py"'), check__py=CHECK)
    shutil.copy(DATA / "fake_server.py", clone.root)
    change(clone, "fault.txt", "none\n")
    clone.git("branch", "-f", "main")
    text = (clone.root / "fake_server.py").read_text()
    rewrite = f"import tests.fakes.openai_server as fake\nfake.WORD = {word!r}\nfrom tests.fakes"
    change(clone, "fake_server.py", text.replace("from tests.fakes", rewrite, 1))
    done = check(perfgate, clone)
    assert done.returncode in codes, done.stdout + done.stderr
    assert words in " ".join(done.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("exits", "the server exited with code 1"),
        ("aborts", "the server was killed by SIGABRT"),
        ("never-ready", "the server did not answer /health within 6 s"),
        ("port", "the server did not answer /health within 6 s"),
        ("status", "2 of 2 requests failed; the first: HTTP 500"),
        ("hang", "2 of 2 requests failed; the first: no complete answer within 3 s"),
        ("truncated", "2 of 2 requests failed; the first: the event stream ended"),
        ("silent", "none of 2 requests was answered with any text"),
    ],
)
def test_server__of_the_head_fails__exit_4_with_its_own_sentence_and_nothing_left(
    perfgate: Perfgate, clone: Clone, fault: str, words: str
) -> None:
    project(clone, SERVER)
    shutil.copy(DATA / "fake_server.py", clone.root)
    change(clone, "fault.txt", "none\n")
    clone.git("branch", "-f", "main")
    change(clone, "fault.txt", f"{fault}\n")
    done = check(perfgate, clone, "--always")
    assert (done.returncode, decision(clone)["verdict"]) == (4, "INCONCLUSIVE"), done.stdout + done.stderr
    assert words in " ".join(done.stdout.split())
    assert left_in_the_end(perfgate.processes) == []


@pytest.mark.slow
def test_server__of_the_head_writes_more_tokens__is_not_the_same_work(perfgate: Perfgate, clone: Clone) -> None:
    project(clone, SERVER)
    shutil.copy(DATA / "fake_server.py", clone.root)
    change(clone, "fault.txt", "none\n")
    clone.git("branch", "-f", "main")
    text = (clone.root / "fake_server.py").read_text()
    more = (
        "import tests.fakes.openai_server as fake\nold = fake.chunks\n"
        "fake.chunks = lambda body, **options: old({**body, 'max_tokens': 5}, **options)\nfrom tests.fakes"
    )
    change(clone, "fake_server.py", text.replace("from tests.fakes", more))
    done = check(perfgate, clone)
    assert (done.returncode, decision(clone)["verdict"]) == (1, "FAIL"), done.stdout + done.stderr
    told = " ".join(done.stdout.split())
    assert "FAIL – chat does different work on base and head: output_tokens: 16 on base, 20 on head" in told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fits", "words"),
    [
        ("", "starts alone but not together with the other side, so whole processes take turns"),
        ('fits = "alternate"', "each run starts the side, and it has the devices alone"),
        ('fits = "sleep"', "one side sleeps while the other has its turn"),
    ],
)
def test_server__room_for_one__both_are_measured_all_the_same(
    perfgate: Perfgate, clone: Clone, tmp_path: Path, fits: str, words: str
) -> None:
    project(clone, SERVER.replace("budget = 60", f"budget = 180\n{fits}"))
    shutil.copy(DATA / "fake_server.py", clone.root)
    # Within walls nothing new can be put beside the clone; a device is there before.
    (tmp_path / "device").touch()
    change(clone, "fault.txt", f"alone 0.004 {tmp_path / 'device'}\n")
    clone.git("branch", "-f", "main")
    change(clone, "fault.txt", f"alone 0.008 {tmp_path / 'device'}\n")
    done = check(perfgate, clone)
    assert words in done.stderr
    assert (done.returncode, decision(clone)["verdict"]) == (1, "FAIL"), done.stdout + done.stderr
    assert left_in_the_end(perfgate.processes) == []


@pytest.mark.slow
def test_server__that_cannot_sleep__is_told_what_it_lacks(perfgate: Perfgate, clone: Clone) -> None:
    project(clone, SERVER.replace("budget = 60", 'budget = 60\nfits = "sleep"'))
    shutil.copy(DATA / "fake_server.py", clone.root)
    change(clone, "fault.txt", "none\n")
    clone.git("branch", "-f", "main")
    change(clone, "notes.py", "NOTES = 1\n")
    done = check(perfgate, clone)
    assert (done.returncode, decision(clone)["verdict"]) == (4, "INCONCLUSIVE"), done.stdout + done.stderr
    assert "the server does not answer a POST to /sleep?level=1" in " ".join(done.stdout.split())


@pytest.mark.slow
def test_server__on_halves_of_the_cpus__they_swap(perfgate: Perfgate, clone: Clone) -> None:
    first, *_, last = sorted(os.sched_getaffinity(0))
    halves = f'budget = 40\nfits = "swap"\nhalves = ["{first}", "{last}"]'
    project(clone, SERVER.replace("budget = 60", halves))
    shutil.copy(DATA / "fake_server.py", clone.root)
    change(clone, "fault.txt", "none 0.004\n")
    clone.git("branch", "-f", "main")
    change(clone, "fault.txt", "none 0.008\n")
    done = check(perfgate, clone)
    assert "each has one half of the devices, and then the other half" in done.stderr
    assert (done.returncode, decision(clone)["verdict"]) == (1, "FAIL"), done.stdout + done.stderr
    assert "job.halves" in {one["metric"] for one in decision(clone)["comparisons"]}


HIGHEST = """
project = "jobs"
[workloads.chat]
serve = "exec python fake_server.py $PORT"
model = "fake"
budget = 60
sla = { first_token = 0.15 }
load = { rate = "highest", requests = 16, input = 4, output = 4 }
"""


@pytest.mark.slow
def test_server__highest_rate__head_no_longer_holds_the_sla_there(perfgate: Perfgate, clone: Clone) -> None:
    project(clone, HIGHEST)
    shutil.copy(DATA / "fake_server.py", clone.root)
    change(clone, "fault.txt", "queue 0.004\n")
    clone.git("branch", "-f", "main")
    change(clone, "fault.txt", "queue 0.008\n")
    done = check(perfgate, clone)
    assert re.search(r"chat: base holds the SLA up to [\d.]+ requests/s, by \d+ requests at \d+ rates", done.stderr), (
        done.stderr
    )
    assert (done.returncode, decision(clone)["verdict"]) == (1, "FAIL"), done.stdout + done.stderr
    (row,) = [one for one in decision(clone)["comparisons"] if one["metric"] == "serving.goodput"]
    assert (row["outcome"], row["gating"], row["better"]) == ("regressed", True, "higher")
    assert row["head"] < row["base"] - 0.1
    assert "base met the SLA at up to" in (clone.root / "perfgate-out" / "comment.md").read_text()


@pytest.mark.slow
def test_server__no_rate_holds_the_sla__is_said(perfgate: Perfgate, clone: Clone) -> None:
    project(clone, HIGHEST.replace("0.15", "0.001"))
    shutil.copy(DATA / "fake_server.py", clone.root)
    change(clone, "fault.txt", "queue 0.004\n")
    clone.git("branch", "-f", "main")
    change(clone, "notes.py", "NOTES = 1\n")
    done = check(perfgate, clone)
    assert (done.returncode, decision(clone)["verdict"]) == (4, "INCONCLUSIVE"), done.stdout + done.stderr
    assert "Error in the base, turns of chat" in done.stdout
    assert "it does not meet the SLA even at" in " ".join(done.stdout.split())


@pytest.mark.slow
def test_command__append__turns_are_added_and_gate_repeats_the_decision(perfgate: Perfgate, clone: Clone) -> None:
    # A margin that nothing excludes; the budget ends each check.
    settings = COMMAND.replace("[workloads.bench]", "[gate]\nok_margin = 0.00001\n[workloads.bench]\nbudget = 2")
    project(
        clone, settings.replace("tolerance = 0.05", "tolerance = 0.0"), bench__py=PROGRAM, step__py="SECONDS = 0.1\n"
    )
    clone.git("branch", "-f", "main")
    change(clone, "step.py", "SECONDS = 0.1 + 0.0\n")
    first = check(perfgate, clone)
    assert first.returncode == 3, first.stdout + first.stderr
    before = documents(clone)
    second = check(perfgate, clone, "--append")
    assert second.returncode == 3, second.stdout + second.stderr
    after = documents(clone)
    for old, new in zip(before, after):
        assert new["jobs"]["turns"][: len(old["jobs"]["turns"])] == old["jobs"]["turns"]
        assert len(new["jobs"]["turns"]) > len(old["jobs"]["turns"])
        assert [session["id"] for session in new["session"]["earlier"]] == [old["session"]["id"]]
        quads = [turn["quad"] for turn in new["jobs"]["turns"]]
        assert sorted(set(quads)) == list(range(max(quads) + 1))
    assert decision(clone)["measured"]["rounds"] == 2
    assert perfgate("gate", "perfgate-out", cwd=clone.root).returncode == 3


def documents(clone: Clone) -> list[dict[str, Any]]:
    return [json.loads((clone.root / "perfgate-out" / side / "run.json").read_text()) for side in ("base", "head")]


@pytest.mark.slow
def test_server__asked_to_end_in_a_long_turn__ends_at_once_and_leaves_nothing(perfgate: Perfgate, clone: Clone) -> None:
    project(clone, SERVER.replace("concurrency = 2", "rate = 0.01").replace("timeout = 3", "timeout = 600"))
    shutil.copy(DATA / "fake_server.py", clone.root)
    change(clone, "fault.txt", "none\n")
    clone.git("branch", "-f", "main")
    change(clone, "notes.py", "NOTES = 1\n")
    perfgate.environment["PYTHONPATH"] = str(ROOT)
    running = perfgate.start("check", "--base", "main", cwd=clone.root)

    def requests() -> list[int]:
        logs = (clone.root / "perfgate-out").rglob("chat-*.log")
        return [log.read_text().count("POST") for log in logs]

    # Each side is warm after two loads of two requests; what comes then is a turn, whose second request is due in minutes.
    wait_until(lambda: sum(requests()) >= 9)
    running.terminate()
    assert running.wait(20) == 130
    assert left_in_the_end(perfgate.processes) == []
