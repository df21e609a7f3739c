"""The files of an emulated VM: real ones, below its folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from aiohttp import web

from tests.emulator.machine import Machine


async def read(machine: Machine, request: web.Request) -> web.StreamResponse:
    path = _file(machine, request)
    if not path.exists():
        return _missing(request.query["path"])
    if path.is_dir():
        return web.json_response({"error": "is a directory", "code": "EISDIR"}, status=400)
    return web.FileResponse(path, headers={"Content-Type": "application/octet-stream"})


async def write(machine: Machine, request: web.Request) -> web.Response:
    path, data = _file(machine, request), await request.read()
    if machine.is_disk_full:
        return web.json_response({"error": "no space left on device", "code": "ENOSPC"}, status=500)
    if request.query.get("mkdirParents") == "true":
        path.parent.mkdir(parents=True, exist_ok=True)
    if not path.parent.is_dir():
        return _missing(request.query["path"])
    mode = request.query.get("mode", "0644")
    path.touch(mode=int(mode, 8))
    path.write_bytes(data)
    path.chmod(int(mode, 8))
    return web.json_response({"path": request.query["path"], "size": len(data), "mode": mode})


async def list_folder(machine: Machine, request: web.Request) -> web.Response:
    path = _file(machine, request)
    if not path.exists():
        return _missing(request.query["path"])
    found = sorted(path.iterdir()) if path.is_dir() else [path]
    entries = [
        {
            "name": entry.name,
            "path": f"{request.query['path'].rstrip('/')}/{entry.name}",
            "type": "directory" if entry.is_dir() else "file",
            "size": entry.lstat().st_size,
            "mode": f"{entry.lstat().st_mode & 0o777:04o}",
            "modTime": "2026-11-20T12:00:00Z",
            "isDir": entry.is_dir(),
        }
        for entry in found
    ]
    return web.json_response({"path": request.query["path"], "entries": entries, "count": len(entries)})


async def delete_file(machine: Machine, request: web.Request) -> web.Response:
    path = _file(machine, request)
    if not path.exists():
        return _missing(request.query["path"])
    if path.is_dir() and request.query.get("recursive") == "true":
        shutil.rmtree(path)
    elif path.is_dir():
        path.rmdir()
    else:
        path.unlink()
    return web.json_response({"deleted": [request.query["path"]], "count": 1})


async def rename(machine: Machine, request: web.Request) -> web.Response:
    body = await request.json()
    source = machine.on_disk(body["source"], body.get("workingDir", "/"))
    if not source.exists():
        return _missing(body["source"])
    source.replace(machine.on_disk(body["dest"], body.get("workingDir", "/")))
    return web.json_response({"source": body["source"], "dest": body["dest"]})


async def chmod(machine: Machine, request: web.Request) -> web.Response:
    body = await request.json()
    path = machine.on_disk(body["path"], body.get("workingDir", "/"))
    if not path.exists():
        return _missing(body["path"])
    path.chmod(int(body["mode"], 8))
    return web.json_response({"affected": [body["path"]], "count": 1})


def _file(machine: Machine, request: web.Request) -> Path:
    return machine.on_disk(request.query["path"], request.query.get("workingDir", "/"))


def _missing(path: str) -> web.Response:
    return web.json_response({"error": "no such file or directory", "code": "ENOENT", "path": path}, status=404)
