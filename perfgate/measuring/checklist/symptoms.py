"""Common mistakes, recognized by the type and words of an exception of torch, Python or
a model hub, with advice.
"""

from __future__ import annotations

import re
from functools import cache

import msgspec

from perfgate.catalogue.load import FOLDER
from perfgate.document.message import Message
from perfgate.toml import tomllib

_DEVICES = {"nvidia": "cuda"}


class Symptom(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way in which a mistake shows; ``catalogue/symptoms.toml`` describes the
    fields.
    """

    errors: str
    words: str
    at_call: bool = False

    def match(
        self, error: BaseException, text: str, *, at_call: bool
    ) -> re.Match[str] | None:
        names = {
            base.__name__ for base in type(error).__mro__
        }  # of libraries that are not imported here, too
        if (self.at_call and not at_call) or names.isdisjoint(self.errors.split()):
            return None
        # Whole words: "input" holds "npu".
        return re.search(rf"(?<!\w)(?:{self.words})(?!\w)", text)


def hint_on(
    error: BaseException, *, device_kind: str | None, at_call: bool
) -> tuple[Message, str] | None:
    """The remedy for the first mistake that the error shows, and the words of its text
    that identify the mistake.

    None if it is not a common mistake.
    """
    text = str(error)
    for advice, symptoms in load_symptoms().items():
        for symptom in symptoms:
            match = symptom.match(error, text, at_call=at_call)
            if match is None:
                continue
            values = {
                name: value.strip()
                for name, value in match.groupdict().items()
                if value is not None
            }
            if advice == "other-device":
                kind = (values.get("other") or values["gpus"]).lower()
                values = {
                    "device": device_kind or "",
                    "other": _DEVICES.get(kind, kind),
                }
                if device_kind is None or values["other"] == device_kind:
                    continue
            return Message(f"mistake.{advice}", values), match.group()
    return None


@cache
def load_symptoms() -> dict[str, list[Symptom]]:
    """The symptoms of each mistake, by the name of its advice."""
    tables = tomllib.loads((FOLDER / "symptoms.toml").read_text(encoding="utf-8"))
    return msgspec.convert(tables, dict[str, list[Symptom]])
