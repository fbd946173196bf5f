"""What of a results folder is compared: its tables, its report's words and data, its models."""

from __future__ import annotations

import csv
import hashlib
import html
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from fl_core.data.folders import cache_dir

_TIMES = {"seconds", "versions"}
_PLACES = {"output-dir", "data-dir", "resume", "encoder"}


def frozen(folder: Path) -> dict[str, str]:
    """Return the texts to compare, by the names of their files."""
    found: dict[str, str] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if path.name in ("summary.json", "grouping.json"):
            found[name] = _json(_without(json.loads(path.read_text(encoding="utf-8")))) + "\n"
        elif path.suffix == ".csv" and "sites" not in path.parts:
            found[name] = _without_times(path.read_text(encoding="utf-8"))
        elif path.suffix == ".txt" and path.name != "log.txt":
            found[name] = path.read_text(encoding="utf-8")
        elif path.name == "report.html":
            found[f"{name}.txt"] = _report(path.read_text(encoding="utf-8"))
        elif path.suffix == ".safetensors" and "models" in path.parts:
            found["models.txt"] = found.get("models.txt", "") + f"{name} {_digest(path)}\n"
    places = {str(cache_dir()): "CACHE", str(folder): "FOLDER", folder.name: "NAME"}
    for place, word in places.items():
        found = {name: text.replace(place, word) for name, text in found.items()}
    return found


def _without(value: Any) -> Any:
    """Return JSON without what differs from one run of the same to the next."""
    if isinstance(value, dict):
        kept = {key: one for key, one in value.items() if key not in _TIMES}
        return {key: "" if key in _PLACES else _without(one) for key, one in kept.items()}
    return [_without(one) for one in value] if isinstance(value, list) else value


def _json(value: Any, indent: str = "") -> str:
    """Return JSON with a list of plain values on one line: a diff shows which list has changed."""
    deeper = indent + " "
    if isinstance(value, dict) and value:
        items = [f"{json.dumps(key)}: {_json(one, deeper)}" for key, one in value.items()]
    elif isinstance(value, list) and any(isinstance(one, dict | list) for one in value):
        items = [_json(one, deeper) for one in value]
    else:
        return json.dumps(value, ensure_ascii=False)
    first, last = "{}" if isinstance(value, dict) else "[]"
    return "\n".join([first, ",\n".join(deeper + item for item in items), indent + last])


def _without_times(text: str) -> str:
    rows = list(csv.reader(io.StringIO(text)))
    kept = [place for place, name in enumerate(rows[0]) if "seconds" not in name]
    return "".join(",".join(row[place] for place in kept) + "\n" for row in rows)


def _report(page: str) -> str:
    """Return a report's words, its tables row by row, and the data of its pictures."""
    specs = re.search(r'<script type="application/json" id="specs">(.*?)</script>', page, re.S)
    page = re.sub(r"<(style|script|noscript)\b.*?</\1>", "", page, flags=re.S)
    lines = []
    for part in re.split(r"(<table>.*?</table>)", page, flags=re.S):
        lines += _table(part) if part.startswith("<table>") else _words(part).splitlines()
    texts = [text.strip() for text in lines if text.strip()]
    data = json.loads(specs[1]) if specs else []
    return "\n".join([*texts, _json(data)]) + "\n"


def _table(text: str) -> list[str]:
    rows = [
        [_words(cell).strip() for cell in re.findall(r"<t[hd]\b.*?>(.*?)</t[hd]>", row, re.S)]
        for row in re.findall(r"<tr>(.*?)</tr>", text, re.S)
    ]
    kept = [place for place, name in enumerate(rows[0]) if not name.endswith((" s", "seconds"))]
    return [" | ".join(row[place] for place in kept) for row in rows]


def _words(text: str) -> str:
    differs = r", \d+ s(?= in all)|Software that made these results: .*"
    return html.unescape(re.sub(differs, "", re.sub(r"<[^>]+>", "\n", text)))


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    for name, array in sorted(load_file(path).items()):
        found.update(f"{name} {array.dtype} {array.shape}\n".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()[:16]
