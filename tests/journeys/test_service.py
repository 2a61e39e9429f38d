"""Journey 5: a team's service from its first token over a restart to its backup, which is restored on another machine."""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
import requests

from tests.browser import Page, browser_page
from tests.journeys.installation import ROOT
from tests.journeys.shell import Shell

WORKLOADS = ROOT / "tests" / "data" / "workloads"
# Everybody who reads the pages has this one.
READING = "the-token-of-everybody-who-reads"


class Reader:
    """A person with a browser: opens an address, follows links, and reads text."""

    def __init__(self, address: str) -> None:
        self._session = requests.Session()
        self._session.trust_env = False
        self._page = ""
        self.place, self.text = address, ""

    def opens(self, address: str) -> str:
        """Open an address, from the page before, and return its text."""
        answer = self._session.get(urljoin(self.place, address), timeout=60)
        assert answer.status_code == 200, (address, answer.status_code, answer.text)
        self.place, self._page, self.text = answer.url, answer.text, _text(answer.text)
        return self.text

    def follows(self, words: str) -> str:
        """Follow the link with these words."""
        links = re.findall(r'<a [^>]*?href="([^"]+)"[^>]*>(.*?)</a>', self._page, flags=re.DOTALL)
        found = [address for address, inside in links if words in _text(inside)]
        assert found, (self.place, words, links)
        return self.opens(html.unescape(found[0]))


def _text(page: str) -> str:
    body = re.sub(r"<(style|script|svg)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


@contextmanager
def serving(shell: Shell, store: Path) -> Iterator[str]:
    """`perfgate serve` in the background, at the address that it prints."""
    with shell.starts(f"perfgate serve --store {store} --port 0", until="?token=") as log:
        printed = log.read_text().strip()
        assert printed.endswith(f"/?token={READING}"), printed
        yield printed.partition("?")[0]


def write_model(runner: Shell) -> None:
    shutil.copy(WORKLOADS / "small_model.py", runner.folder / "model.py")
    (runner.folder / "perf").mkdir()
    shutil.copy(WORKLOADS / "small_workload.py", runner.folder / "perf" / "workload.py")
    runner.writes("perfgate.toml", 'project = "shop"\nworkload = "perf/workload.py:small"\n')
    runner.types(
        "git init -q -b main . && git add . && git -c user.name=Li -c user.email=li@example.com commit -qm 'a model'"
    )


def read_in_chromium(address: str, profile: Path) -> str:
    """The text that a real browser shows at an address, and what its console complained about."""
    with browser_page(profile) as page:
        _navigate(page, address)
        shown = page.ask("document.body.innerText")
        assert page.errors == []
        assert {urlsplit(request).netloc for request in page.requests} == {urlsplit(address).netloc}
        return str(shown)


def _navigate(page: Page, address: str) -> None:
    page.call("Page.navigate", url=address)
    arrived = "document.readyState === 'complete' && location.protocol === 'http:'"
    page.ask(f"new Promise((done) => {{ const wait = () => {arrived} ? done(true) : setTimeout(wait, 20); wait(); }})")


@pytest.mark.journey
def test_service__from_the_first_token_to_a_restored_backup__old_tokens_upload_and_the_history_is_there(
    shell: Shell, tmp_path: Path
) -> None:
    # The operator makes two tokens and starts the service.
    shell.types("mkdir srv && mkdir backup && mkdir elsewhere")
    machine = shell.opens_another(shell.folder, PERFGATE_SERVE_TOKEN=READING)
    store = shell.folder / "srv" / "store.db"
    create = f"perfgate token create --scope write --project shop --store {store}"
    secret = shell.types(f"{create} ci-runner").text.split()[-1]
    lost = shell.types(f"{create} old-runner").text.split()[-1]
    listed = shell.types(f"perfgate token list --store {store}").text
    (lost_id,) = [line.split()[0] for line in listed.splitlines() if "old-runner" in line]
    shell.types(f"perfgate token revoke {lost_id} --store {store}").shows("revoked")

    runner = shell.opens_another(tmp_path / "runner", PERFGATE_STORE_TOKEN=secret)
    write_model(runner)
    with serving(machine, store) as address:
        # A runner measures, uploads, and accepts a regression; what is revoked uploads nothing.
        runner.types("env -u PERFGATE_STORE_TOKEN perfgate run --quick --steps 1 --out first")
        record = "perfgate baseline record --run first/run.json"
        runner.types(f"PERFGATE_STORE={address} PERFGATE_STORE_TOKEN={lost} {record}", ends=4).shows("token")
        run_id = _kept(runner.types(f"PERFGATE_STORE={address} {record}").text)
        accept = "perfgate baseline accept 'latency.*' --reason 'a larger vocabulary' --by Li"
        runner.types(f"PERFGATE_STORE={address} {accept}").shows("accepted latency.*")

        # A person opens the printed address.
        reader = Reader(address)
        assert "shop" in reader.opens(f"?token={READING}")
        assert "token" not in urlsplit(reader.place).query
        assert run_id in reader.follows("Runs")
        (started,) = re.findall(r"20\d\d-\d\d-\d\d \d\d:\d\d", reader.text.partition(run_id)[0])[-1:]
        assert "latency" in reader.follows(started)
        log = reader.follows("Audit log")
        assert f"token {_id_of(listed, 'ci-runner')} ci-runner shop run recorded {run_id}" in log
        assert f"{lost_id} old-runner (write)" in log

    # After a restart all of it is there.
    with serving(machine, store) as address:
        reader = Reader(address)
        reader.opens(f"?token={READING}")
        assert run_id in reader.follows("Runs")
        # The backup, while the service runs.
        copied = shell.types(f"perfgate store copy {store} backup/today.db")
        copied.shows("runs: 1; acceptances: 1;", "tokens: 2; audit entries: 5")
        copied.hides("not copied")

    # The machine is lost; another one starts from the backup. Nothing but the address changes for the runner.
    shell.types("rm -r srv")
    restored = shell.folder / "elsewhere" / "store.db"
    shell.types(f"perfgate store copy backup/today.db {restored}").shows("tokens: 2;")
    shell.types(f"perfgate store verify {restored}").shows("runs read: 1; faults: 0")
    with serving(machine, restored) as address:
        runner.types("env -u PERFGATE_STORE_TOKEN perfgate run --quick --steps 1 --out second")
        record = "perfgate baseline record --run second/run.json"
        runner.types(f"PERFGATE_STORE={address} PERFGATE_STORE_TOKEN={lost} {record}", ends=4)
        second_id = _kept(runner.types(f"PERFGATE_STORE={address} {record}").text)
        runner.types(f"PERFGATE_STORE={address} perfgate baseline accepted").shows("latency.*", "vocabulary")
        reader = Reader(address)
        reader.opens(f"?token={READING}")
        runs = reader.follows("Runs")
        assert (run_id in runs, second_id in runs) == (True, True)
        log = reader.follows("Audit log")
        writer = f"token {_id_of(listed, 'ci-runner')} ci-runner"
        # Newest first: the new upload, what the copies brought, and the history from before.
        places = [log.index(words) for words in (f"{writer} shop run recorded {second_id}", "store copy", run_id)]
        assert places == sorted(places), log
        for line in (f"{writer} shop run recorded {run_id}", f"{writer} shop regression accepted", "token revoked"):
            assert line in log
        shown = _in_a_browser(f"{address}audit?token={READING}", tmp_path)
        assert shown is None or (run_id in shown and second_id in shown)


def _kept(screen: str) -> str:
    """The beginning of the id of the run that was stored, which pages show."""
    found = re.search(r"kept run ([0-9a-f]{12}) of shop", screen)
    assert found, screen
    return found[1]


def _id_of(listed: str, name: str) -> str:
    return next(line.split()[0] for line in listed.splitlines() if line.endswith(name))


def _in_a_browser(address: str, tmp_path: Path) -> str | None:
    """The text of a page in Chromium; None where there is none, as the page was read over HTTP, too."""
    try:
        return read_in_chromium(address, tmp_path / "profile")
    except pytest.skip.Exception:
        return None
