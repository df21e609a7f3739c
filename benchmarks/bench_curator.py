"""The curator's prompt: its static part first, and within its budget whatever the batch holds."""

from __future__ import annotations

from benchmarks.report import line
from sprite.curation.extraction import NEAREST_LEARNINGS
from sprite.curation.prompt import OpenLearning, build_prompt
from sprite.log.transcript import Observation
from sprite.memory.files import BOOT_ORDER, BYTE_LIMIT, PROMPT_BUDGET_TOKENS, estimate_tokens, template


def turns(number: int, characters: int) -> list[Observation]:
    """A batch whose every text has this length."""
    text = ("All work and no play makes a dull day. " * (characters // 39 + 1))[:characters]
    call = {
        "tool_use_id": "t",
        "name": "Bash",
        "input": {"command": text[:2000]},
        "result": text[:2000],
        "is_error": False,
    }
    return [
        Observation("s", text, [call] * 5, text, "complete", id=n, timestamp=1.8e9, sequence_num=n)
        for n in range(1, number + 1)
    ]


def main() -> None:
    """Prints every figure."""
    learnings = [OpenLearning(n, "FACT", "x" * 1000, "user", 0.0) for n in range(NEAREST_LEARNINGS)]
    full = dict.fromkeys(BOOT_ORDER, "y" * BYTE_LIMIT)
    shipped = {name: template(name) for name in BOOT_ORDER}
    cases = {
        "25 ordinary turns, files as shipped": (turns(25, 400), shipped),
        "25 long turns, full files": (turns(25, 20_000), full),
        "one turn of 200,000 characters, full files": (turns(1, 200_000), full),
    }
    systems = set()
    for name, (batch, files) in cases.items():
        prompt = build_prompt(
            files=files,
            open_learnings=learnings,
            turns=batch,
            budget_tokens=PROMPT_BUDGET_TOKENS,
        )
        systems.add(prompt.system)
        value = f"{prompt.tokens:,} tokens, {prompt.turns} of {len(batch)} turns"
        line(name, value, f"<= {PROMPT_BUDGET_TOKENS:,} tokens", ok=prompt.tokens <= PROMPT_BUDGET_TOKENS)
    static = estimate_tokens(next(iter(systems)))
    line("static part, first and the same in every call", f"{static:,} tokens", "1 version", ok=len(systems) == 1)


if __name__ == "__main__":
    main()
