"""A part of the service: its routes, and how it takes part in the start and end of the
whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from fastapi import APIRouter


class ServicePart(ABC):
    """One of the parts that an application is made of; all of them share its admission
    and its errors.

    ``records`` are the records that its responses hold, for the description in OpenAPI.
    """

    records: tuple[type, ...] = ()

    @abstractmethod
    def router(self) -> APIRouter: ...

    def check(self) -> None:  # noqa: B027 - most parts need no check
        """Raise PerfgateError if the part cannot answer now."""

    def public(self, text: str) -> str:
        """An error for the network: without places of this machine."""
        return text

    def close(self) -> None:  # noqa: B027 - most parts hold no resources
        """End what the part holds open."""
