"""What a branch store holds beside its documents, decoded on demand."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.errors import StoreError
from perfgate.judging.store import layout
from perfgate.judging.store.layout import RunFile
from perfgate.judging.store.scratch import Tip
from perfgate.judging.store.store import RunEntry, SeriesPlace


class BranchContents:
    """The files of a branch except the documents, decoded on demand."""

    def __init__(self, name: str, tip: Tip, files: Mapping[str, bytes]) -> None:
        self.tip = tip
        self._name = name
        self._files = files
        self._decoded: dict[str, tuple[list[RunFile], list[str]]] = {}
        self._histories: dict[str, dict[SeriesPlace, list[tuple[RunFile, float]]]] = {}

    def file(self, path: str) -> bytes:
        """The file of a list; an empty list if it is missing."""
        return self._files.get(path, layout.EMPTY_LIST)

    def runs(self, project: str) -> list[RunFile]:
        return self._decode(project)[0]

    def damaged(self, project: str) -> list[str]:
        """One message per unreadable run file; it does not hide the other runs."""
        return self._decode(project)[1]

    def projects(self) -> list[str]:
        """The projects of all readable run files."""
        keys = {path.split("/")[1] for path in self._files if layout.parse_run_path(path)}
        return sorted({file.run.project for key in keys for file in self._decode_key(key)[0]})

    def entries(self, project: str) -> Mapping[str, RunEntry]:
        """What lists and series hold of every run of a project, by its id."""
        fields = RunEntry.__struct_fields__
        return {file.run.id: RunEntry(**{name: getattr(file, name) for name in fields}) for file in self.runs(project)}

    def histories(self, project: str) -> Mapping[SeriesPlace, list[tuple[RunFile, float]]]:
        """The values of every series, oldest session first, each with its run; grouped once and cached."""
        if project not in self._histories:
            series: dict[SeriesPlace, list[tuple[RunFile, float]]] = {}
            for file in sorted(self.runs(project), key=lambda file: (file.started, file.run.id)):
                for value in file.values:
                    place = value.place(file.run.fingerprint)
                    series.setdefault(place, []).append((file, value.value))
            self._histories[project] = series
        return self._histories[project]

    def _decode(self, project: str) -> tuple[list[RunFile], list[str]]:
        return self._decode_key(layout.project_key(project))

    def _decode_key(self, key: str) -> tuple[list[RunFile], list[str]]:
        if key not in self._decoded:
            runs: list[RunFile] = []
            damaged: list[str] = []
            for path, data in self._files.items():
                if path.startswith(f"runs/{key}/"):
                    try:
                        runs.append(layout.decode_run(data, path, name=f"{self._name}: {path}"))
                    except StoreError as error:
                        damaged.append(str(error))
            self._decoded[key] = runs, damaged
        return self._decoded[key]
