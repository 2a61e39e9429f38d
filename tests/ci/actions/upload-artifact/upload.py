"""Zip the files that match, below the folder they have in common, as actions/upload-artifact does."""

import os
import sys
import zipfile
from pathlib import Path

version_3 = os.environ["VERSION"] == "v3"
if os.environ.get("ACT_ENTERPRISE") and not version_3:
    sys.exit("error: upload-artifact@v4+ is not supported on GHES")
patterns = [line for line in os.environ["PATTERNS"].splitlines() if line]
found = sorted({path.resolve() for one in patterns for path in Path(Path(one).anchor).glob(one.lstrip("/"))})
files = [path for path in found if path.is_file()]
if not files:
    print(f"{os.environ['MISSING']}: no files were found")
    sys.exit(os.environ["MISSING"] == "error")
# Not that of the files: the paths that are searched count (actions/upload-artifact, src/shared/search.ts).
searched = [Path(one.partition("*")[0]) for one in patterns]
root = Path(os.path.commonpath([path.resolve() if path.is_dir() else path.resolve().parent for path in searched]))
run, kept = os.environ["GITHUB_RUN_ID"], Path(os.environ["ACT_ARTIFACTS"])
raw = os.environ["ARCHIVE"] == "false" and not version_3
if raw and len(files) != 1:
    sys.exit(f"error: without an archive one file can be uploaded, not {len(files)}")
# "The name of the artifact will be the name of the file" (actions/upload-artifact, README, "archive").
name = files[0].name if raw else os.environ["NAME"]
number = len(list(kept.iterdir())) + 1
target = kept / f"{run}.{name}.{'raw' if raw else 'zip'}"
if target.exists():
    sys.exit(f"error: an artifact with the name {name} is already there")
if raw:
    target.write_bytes(files[0].read_bytes())
else:
    with zipfile.ZipFile(target, "x", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            archive.write(path, path.relative_to(root))
print(f"{name}: {len(files)} files")
if not version_3:
    with Path(os.environ["GITHUB_OUTPUT"]).open("a") as outputs:
        outputs.write(
            f"artifact-url={os.environ['GITHUB_SERVER_URL']}/team/model/actions/runs/{run}/artifacts/{number}\n"
        )
