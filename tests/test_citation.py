"""CITATION.cff holds what the Citation File Format 1.2.0 wants, and agrees with pyproject.toml."""

import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
# The format's keys and types, as far as they are used here.
KEYS = {
    *("cff-version", "message", "type", "title", "abstract", "version", "license", "authors"),
    *("keywords", "references"),
}
REFERENCE_KEYS = {
    *("type", "title", "authors", "year", "month", "conference", "journal", "volume", "issue"),
    *("start", "end", "doi", "notes"),
}
REFERENCE_TYPES = {"article", "conference-paper", "unpublished"}


def test_the_required_keys_are_there():
    assert {"cff-version", "message", "title", "authors"} <= set(CITATION) <= KEYS
    assert CITATION["cff-version"] == "1.2.0"
    assert CITATION["type"] == "software"
    assert CITATION["authors"]
    assert all(isinstance(CITATION[key], str) for key in ("message", "title", "version"))


def test_it_agrees_with_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for key, own in (("title", "name"), ("version", "version")):
        assert CITATION[key] == project[own]
    assert CITATION["license"] == "Apache-2.0"
    text = (ROOT / project["license"]["file"]).read_text(encoding="utf-8")
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]


def test_the_four_papers_are_references():
    titles = [one["title"].split(":")[0] for one in CITATION["references"]]
    assert titles == [
        "RCC-PFL",
        "Data Similarity-Based One-Shot Clustering for Multi-Task Hierarchical Federated Learning",
        "Federated Learning With Taskonomy for Non-IID Data",
        "Federated Learning with Hierarchical Clustering for Personalized Model Aggregation",
    ]
    for one in CITATION["references"]:
        assert {"type", "title", "authors"} <= set(one) <= REFERENCE_KEYS
        assert one["type"] in REFERENCE_TYPES
        assert all(set(author) & {"family-names", "name"} for author in one["authors"])
        assert isinstance(one.get("year", 0), int)
        assert "name" in one.get("conference", {"name": ""})
