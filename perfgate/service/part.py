"""A part of the service: its routes, and how it takes part in the start and end of the whole."""

from __future__ import annotations

from typing import Protocol

from fastapi import APIRouter


class ServicePart(Protocol):
    """One of the parts that an application is made of; all of them share its admission and its errors."""

    @property
    def records(self) -> tuple[type, ...]:
        """The records that its responses hold, for the description in OpenAPI."""

    def router(self) -> APIRouter: ...

    def check(self) -> None:
        """Raise PerfgateError if the part cannot answer now."""

    def public(self, text: str) -> str:
        """An error for the network: without places of this machine."""

    def close(self) -> None: ...
