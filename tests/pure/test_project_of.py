"""The project of a folder, from its repository's files alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sprite.memory import folders
from sprite.memory.folders import Projects
from tests.claude_code import session_start_script

ProjectOf = Callable[[Path], str]


def plugins_project_of(folder: Path) -> str:
    """The Claude Code plugin's copy, which must work without a sprite."""
    found: str = session_start_script().project_of(str(folder))
    return found


@pytest.fixture(params=[folders.project_of, plugins_project_of], ids=["sprite", "plugin"])
def project_of(request: pytest.FixtureRequest) -> ProjectOf:
    """Assert that both implementations agree, and return the result."""
    chosen: ProjectOf = request.param
    return chosen


def repository(root: Path) -> Path:
    """Make the file by which git recognizes a repository."""
    (root / ".git").mkdir(parents=True)
    (root / ".git/HEAD").write_text("ref: refs/heads/main\n")
    return root


def worktree(root: Path, at: Path, *, relative: bool = False) -> Path:
    """Make both sides of a `git worktree add`."""
    about = (root / ".git" if (root / ".git").is_dir() else root) / "worktrees" / at.name
    about.mkdir(parents=True)
    at.mkdir(parents=True)
    to, back = (os.path.relpath(about, at), os.path.relpath(at / ".git", about)) if relative else (about, at / ".git")
    (at / ".git").write_text(f"gitdir: {to}\n")
    (about / "gitdir").write_text(f"{back}\n")
    (about / "commondir").write_text("../..\n")
    (about / "HEAD").write_text("ref: refs/heads/other\n")
    return at


def below(folder: Path) -> Path:
    deep = folder / "src/deep"
    deep.mkdir(parents=True)
    return deep


def test_subfolder_belongs_to_repository_root(project_of: ProjectOf, tmp_path: Path) -> None:
    root = repository(tmp_path / "code")
    assert project_of(root) == project_of(below(root)) == str(root)


@pytest.mark.parametrize("relative", [False, True])
def test_worktrees_belong_to_main_one(project_of: ProjectOf, tmp_path: Path, relative: bool) -> None:
    root = repository(tmp_path / "code")
    one = worktree(root, tmp_path / "elsewhere/one", relative=relative)
    assert project_of(one) == project_of(below(one)) == project_of(root) == str(root)


def test_bare_repository_owns_its_worktrees(project_of: ProjectOf, tmp_path: Path) -> None:
    bare = tmp_path / "code.git"
    bare.mkdir()
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    one, two = (worktree(bare, tmp_path / name) for name in ("one", "two"))
    assert project_of(one) == project_of(two) == str(bare)


def test_submodule_is_separate_project(project_of: ProjectOf, tmp_path: Path) -> None:
    root = repository(tmp_path / "code")
    kept = root / ".git/modules/part"
    kept.mkdir(parents=True)
    (kept / "HEAD").write_text("ref: refs/heads/main\n")
    part = root / "part"
    part.mkdir()
    (part / ".git").write_text("gitdir: ../.git/modules/part\n")
    assert project_of(below(part)) == str(part)


def test_folder_without_repository_is_its_own_project(project_of: ProjectOf, tmp_path: Path) -> None:
    plain = below(tmp_path)
    assert project_of(plain) == str(plain)
    (tmp_path / ".git").mkdir()
    assert project_of(plain) == str(plain), "an empty .git is no repository"


def test_missing_folder_is_taken_as_named(project_of: ProjectOf) -> None:
    assert project_of(Path("/home/ada/gone/code")) == "/home/ada/gone/code"
    assert project_of(Path("/home/ada/\0")) == "/home/ada/\0"


def test_linked_folder_belongs_to_its_real_path(project_of: ProjectOf, tmp_path: Path) -> None:
    root = repository(tmp_path / "code")
    (tmp_path / "link").symlink_to(root)
    assert project_of(tmp_path / "link") == str(root)


def test_git_file_claiming_foreign_repository_is_ignored(project_of: ProjectOf, tmp_path: Path) -> None:
    others = repository(tmp_path / "others")
    worktree(others, tmp_path / "theirs")
    foreign = tmp_path / "downloaded"
    foreign.mkdir()
    (foreign / ".git").write_text(f"gitdir: {others}/.git/worktrees/theirs\n")
    assert project_of(foreign) == str(foreign)


@pytest.mark.parametrize(
    "written",
    [b"gitdir: /nowhere\n", b"gitdir:", b"", b"gitdir: " + b"../" * 3000, b"\xff\xfe\x00", b"gitdir: a\0b\n", b"hello"],
    ids=["nowhere", "no path", "empty", "huge", "binary", "nul", "other words"],
)
def test_useless_git_file_is_ignored(project_of: ProjectOf, tmp_path: Path, written: bytes) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/.git").write_bytes(written)
    assert project_of(tmp_path / "code") == str(tmp_path / "code")


def test_circular_links_and_pipes_are_not_followed(project_of: ProjectOf, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / ".git").symlink_to(code / ".git")
    assert project_of(code) == str(code)
    (code / ".git").unlink()
    os.mkfifo(code / ".git")
    assert project_of(code) == str(code)
    (code / ".git").unlink()
    one = worktree(repository(tmp_path / "main"), tmp_path / "one")
    about = tmp_path / "main/.git/worktrees/one"
    (about / "commondir").unlink()
    os.mkfifo(about / "commondir")
    assert project_of(one) == str(one), "the file names a worktree of an unreadable repository"


# --- folder names in a session's log ---


@pytest.mark.parametrize(
    "folder",
    ["../..", "code", "", "..", "/a\nb", "/a\0b", "/a\u2028b", "/\ud800", "/" + "a" * 1000, 7, None, ["/a"], {"a": 1}],
)
def test_name_without_path_has_no_project(folder: object, tmp_path: Path) -> None:
    assert Projects(tmp_path).of(folder) is None


def test_foreign_machine_folders_are_shown_as_given(tmp_path: Path) -> None:
    assert Projects(tmp_path).of("C:\\Users\\Ada\\code") == "C:\\Users\\Ada\\code"
    assert Projects(tmp_path).of("/Users/ada/\u00fcbung eins") == "/Users/ada/\u00fcbung eins"


def test_sprites_workspace_is_persons_own_anywhere(tmp_path: Path) -> None:
    root = repository(tmp_path / "code")
    workspace = below(root)
    seen = Projects(workspace)
    assert seen.of(str(workspace)) is seen.of(str(below(workspace / "documents"))) is None
    assert seen.of(str(root)) == str(root), "the folders around it do not belong to it"
    cloned = repository(workspace / "cloned")
    assert seen.of(str(cloned)) == str(cloned)
