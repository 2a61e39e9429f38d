"""Sentences that the gate and the checklist write into documents, and their Chinese words."""

from __future__ import annotations

from perfgate.catalogue.card import Text

MESSAGES: tuple[Text, ...] = ()
