"""Sentences that the gate and the checklist write into documents, and their Chinese words, a module for each area.

Documents are English whatever language a report is in. A test holds every sentence here against the code that writes it.
"""

from __future__ import annotations


class Text(str):
    """An English sentence with its Chinese translation ``zh``."""

    __slots__ = ("zh",)
    zh: str

    def __new__(cls, en: str, zh: str) -> Text:
        text = super().__new__(cls, en)
        text.zh = zh
        return text
