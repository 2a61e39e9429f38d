"""Forms of our pages, which work without any script, and the rights of their senders.

A browser sends its cookie with requests that a foreign page made up, too, so the cookie
alone has no rights: a form holds a token that was typed in, or the key that only the
reader of our own page can know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from perfgate.service.answers import Responses, page_answer, written
from perfgate.service.callers import Authenticator, Caller, is_same_secret

MOST_FORM_BYTES = 16 * 1024
# The fields with the rights of the sender, for /openapi.json.
RIGHTS: dict[str, Any] = {
    "token": {"type": "string", "description": "A token with scope write."},
    "key": {
        "type": "string",
        "description": "The key in the page of a reader who has signed in with such a token.",
    },
}


def form_body(fields: Mapping[str, Any], required: list[str]) -> dict[str, Any]:
    """The description of a form in /openapi.json."""
    schema = {
        "type": "object",
        "required": required,
        "properties": {**fields, **RIGHTS},
    }
    return {
        "requestBody": {
            "required": True,
            "content": {"application/x-www-form-urlencoded": {"schema": schema}},
        }
    }


def form_answer(stored: str) -> Responses:
    """The responses to a form: a redirect, described by ``stored``, in place of a page."""
    responses = written(page_answer())
    del responses[int(HTTPStatus.OK)]
    responses[int(HTTPStatus.SEE_OTHER)] = {"description": stored}
    return responses


def form_fields(body: bytes) -> dict[str, str]:
    try:
        return dict(
            parse_qsl(
                body.decode("ascii"),
                keep_blank_values=True,
                max_num_fields=20,
                errors="replace",
            )
        )
    except ValueError:  # UnicodeDecodeError is one too
        return {}


def form_sender(
    authenticator: Authenticator,
    caller: Caller,
    fields: Mapping[str, str],
    *,
    project: str | None,
) -> Caller | None:
    """The sender of a form, if it may write to the project, or to all for None: by a
    token, the form's key, or its header.
    """
    if typed := fields.get("token", "").strip():
        sender = authenticator.caller(typed)
        if sender is None or sender.project not in (None, project):
            return None
        caller = sender
    elif caller.form_key and is_same_secret(fields.get("key", ""), caller.form_key):
        return replace(caller, may_write=True)
    return caller if caller.may_write else None
