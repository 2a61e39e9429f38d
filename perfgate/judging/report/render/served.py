"""The first page of `perfgate serve`: every recording with its flame graph and timeline."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime, timezone
from urllib.parse import quote

from perfgate.document.served import ServedRecording
from perfgate.judging.report.text.templates import environment
from perfgate.judging.report.text.words import Words
from perfgate.locale import Language, speaking
from perfgate.version import __version__


def render_index(recordings: Sequence[ServedRecording], language: Language) -> str:
    """The page. Its policy header lets the browser load nothing and run nothing."""
    with speaking(language):
        jinja = environment("html")
        assert jinja.loader is not None
        style = jinja.loader.get_source(jinja, "flame/style.css")[0]
        values = {
            "style": Words(style),
            "style_hash": Words(base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()),
            "rows": [
                (
                    one,
                    quote(one.name, safe=""),
                    Words(f"{datetime.fromtimestamp(one.modified, timezone.utc):%Y-%m-%d %H:%M}"),
                )
                for one in recordings
            ],
            "version": __version__,
        }
        return jinja.get_template("served/index.html.j2").render(values)
