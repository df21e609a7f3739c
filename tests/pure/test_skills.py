"""Skill listing: common formats are parsed, and invalid or linked entries are skipped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sprite.boot.prompt import HEAD_BYTES, MAX_DESCRIPTION_CHARS, MAX_SKILLS, Skill, skills_in


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def described(description: str) -> str:
    return f"---\nname: x\n{description}\n---\nThe rest.\n"


@pytest.mark.parametrize(
    "written",
    [
        "description: Makes tea: green, and black.",
        'description: "Makes tea: green, and black."',
        "description: 'Makes tea: green, and black.'",
        "description: >\n  Makes tea:\n  green, and black.",
        "description: |-\n  Makes tea: green,\n  and black.\nlicense: MIT",
        "description:\n  Makes tea: green, and black.",
    ],
)
def test_description_is_parsed_in_every_notation(tmp_path: Path, written: str) -> None:
    folder = tmp_path / "skills"
    put(folder, "tea", described(written))
    assert skills_in(folder) == [Skill("tea", "Makes tea: green, and black.", "skills/tea/SKILL.md")]


def test_skills_are_sorted_and_bounded(tmp_path: Path) -> None:
    for number in reversed(range(MAX_SKILLS + 5)):
        put(tmp_path, f"s{number:03}", described("description: " + "long " * 400))
    found = skills_in(tmp_path)
    assert [skill.name for skill in found] == [f"s{number:03}" for number in range(MAX_SKILLS)]
    assert {len(skill.description) for skill in found} == {MAX_DESCRIPTION_CHARS}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no front matter\ndescription: x\n",
        "---\nname: x\n---\ndescription: too late\n",
        "---\ndescription: never closed\n",
        "---\ndescription:\n---\n",
        "---\n" + "x" * HEAD_BYTES + "\ndescription: too far down\n---\n",
    ],
)
def test_skill_without_description_is_skipped(tmp_path: Path, text: str) -> None:
    put(tmp_path, "odd", text)
    assert skills_in(tmp_path) == []


def test_links_pipes_and_odd_names_are_skipped(tmp_path: Path) -> None:
    folder = tmp_path / "skills"
    secret = put(tmp_path, "elsewhere", described("description: secret"))
    put(folder, "a\nname", described("description: x"))
    put(folder, "n" * 65, described("description: x"))
    (folder / "linked").symlink_to(secret.parent)
    (folder / "link").mkdir()
    (folder / "link/SKILL.md").symlink_to(secret)
    (folder / "pipe").mkdir()
    os.mkfifo(folder / "pipe/SKILL.md")
    (folder / "folder/SKILL.md").mkdir(parents=True)
    (folder / "file").write_text("x")
    assert skills_in(folder) == []


def test_binary_file_and_missing_folder_are_harmless(tmp_path: Path) -> None:
    put(tmp_path, "bytes", "").write_bytes(b"---\ndescription: \xff tea\n---\n")
    assert [skill.description for skill in skills_in(tmp_path)] == ["� tea"]
    assert skills_in(tmp_path / "missing") == []
