"""templates/slurm and templates/kubernetes: scripts that a shell reads, directives that sbatch knows, no token in them.

tests/cluster hands them to sbatch and to a validator of Kubernetes, and runs them.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

TEMPLATES = Path(__file__).parents[3] / "templates"
SBATCH = TEMPLATES / "slurm" / "testbed.sbatch"
JOB = TEMPLATES / "kubernetes" / "testbed.yml"
# sbatch(1) of Slurm 22.05.
_OPTIONS = """
account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment constraint container contiguous
core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution error
exclude exclusive export export-file extra-node-info get-user-env gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-
socket gpus-per-task gres gres-flags hint hold ignore-pbs input job-name kill-on-invalid-dep licenses mail-type mail-
user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nice no-kill no-requeue nodefile nodelist nodes
ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output overcommit oversubscribe
parsable partition power prefer priority profile propagate qos quiet reboot requeue reservation signal sockets-per-
node spread-job switches thread-spec threads-per-core time time-min tmp uid use-min-nodes verbose wait wait-all-nodes
wckey wrap
"""


def containers() -> dict[str, dict[str, Any]]:
    pod = yaml.safe_load(JOB.read_text())["spec"]["template"]["spec"]
    return {one["name"]: one for one in (*pod["initContainers"], *pod["containers"])}


def test_sbatch__directives__before_the_first_command_and_known_to_sbatch() -> None:
    head, _, body = SBATCH.read_text().partition("\nset -euo pipefail\n")
    named = re.findall(r"^#SBATCH --([a-z-]+)(?:=\S+)?$", head, flags=re.MULTILINE)
    assert len(named) == head.count("#SBATCH") >= 6
    assert set(named) <= set(_OPTIONS.split())
    assert "#SBATCH" not in body
    # What the calling job has in its environment stays there.
    assert "#SBATCH --export=NONE\n" in head


@pytest.mark.parametrize(
    "script", [SBATCH.read_text(), *(one["args"][0] for one in containers().values())], ids=["sbatch", *containers()]
)
def test_scripts__read_by_bash__no_complaint(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_job__token_of_the_clone__in_the_first_container_alone() -> None:
    found = containers()
    assert list(found) == ["clone", "measure", "artifact"]
    secret = [name for name, one in found.items() if "secretKeyRef" in str(one)]
    assert secret == ["clone"]
    pod = yaml.safe_load(JOB.read_text())["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False


def test_job__placeholders__are_those_that_its_command_names() -> None:
    text = JOB.read_text()
    (named,) = re.findall(r"envsubst '([^']*)'", text)
    used = set(re.findall(r"\"(\$\{[A-Z]+\})\"", text))
    assert {name.replace("{", "").replace("}", "") for name in used} == set(named.split())
