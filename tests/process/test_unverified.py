"""Unverified learnings over the wire and in the terminal, and `doctor --live`, which measures the verifier's model."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

from sprite.cli.live import fixed_lines
from tests.command_line import command
from tests.harness import running_sprite
from tests.inspection import curations
from tests.scripted_model import OfflineModel


async def test_person_answers_about_imported_learnings(workspace: Path, model: OfflineModel) -> None:
    said = ["I prefer tea to coffee.", "My cat is called Turing.", "My dog is called Ada."]
    turns = [
        {"external_id": f"t-{number}", "session": "s-1", "at": time.time(), "user": text, "reply": "Noted."}
        for number, text in enumerate(said)
    ]
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await client.ask("observe", {"source": "codex", "turns": turns})
        await client.ask("system", {"action": "flush"})
        learned = (await client.ask("memory", {"op": "learnings"}))["payload"]["learnings"]
        asked = [row for row in learned if row["proposed"] is not None]
        assert [(row["origin"], row["type"]) for row in asked] == [("codex", "FACT")] * 3
        assert asked[0]["proposed"] == "PREFERENCE"
        yes, no, third = (row["id"] for row in asked)

        answer = (await client.ask("memory", {"op": "learning", "id": yes, "action": "confirm"}))["payload"]
        now = answer["learning"]
        assert (answer["op"], now["type"], now["origin"], now["proposed"]) == ("learning", "PREFERENCE", "user", None)
        update = await client.until(
            lambda found: found["type"] == "memory_update" and found["payload"]["answered"] != []
        )
        assert (update["payload"]["answered"], update["payload"]["learnings"]) == ([now], [])
        answer = (await client.ask("memory", {"op": "learning", "id": no, "action": "retire"}))["payload"]
        assert answer["learning"]["superseded_by"] == 0
        again = await client.ask("memory", {"op": "learning", "id": no, "action": "confirm"})
        assert (again["type"], again["payload"]["code"]) == ("error", "conflict")
        hits = (await client.ask("memory", {"op": "search", "query": "dog"}))["payload"]["hits"]
        assert [hit.get("unverified") for hit in hits if hit["kind"] == "learning"] == [True]

        _, shown, _ = await command(workspace, "memory", "learnings")
        assert [shown.count(mark) for mark in ("[unverified]", "[no longer true]", "memory confirm N")] == [1, 1, 1]
        code, out, _ = await command(workspace, "memory", "confirm", str(third))
        assert (code, out) == (0, f"Learning {third} is now your own word.\n")
    assert (await command(workspace, "memory", "retire", str(third)))[0] == 0
    code, _, err = await command(workspace, "memory", "retire", str(third))
    assert (code, f"Learning {third} no longer holds" in err) == (2, True)
    assert Counter(row["kind"] for row in curations(workspace))["learning"] == 4


async def test_doctor_live_measures_verifier(workspace: Path, model: OfflineModel) -> None:
    """A model that agrees to everything fails; the offline model is named."""
    lines = fixed_lines()
    assert Counter((line.language, line.said) for line in lines) == {
        (language, said): 4 for language in ("en", "de", "fr", "es", "nl") for said in (True, False)
    }
    code, out, err = await command(workspace, "doctor", "--live", model_url=model.url, SPRITE_OFFLINE="1")
    assert out.startswith("Asking the offline model about 40 fixed lines in 4 calls: about free."), err
    assert out.endswith("Cost: nothing.\n")
    asked = [request for request in model.requests if request.kind == "verifier"]
    assert len(asked) == 4
    assert sum(request.user_text.count("<message id=") for request in asked) == 40
    code, out, _ = await command(workspace, "doctor", "--live", "--json", model_url=model.url, SPRITE_OFFLINE="1")
    found = json.loads(out)
    assert (found["offline"], code) == (True, int(found["accepted"] > 2 or found["refused"] > 4))
    assert len(found["wrong"]) == found["accepted"] + found["refused"]

    # A script for the curator makes this model agree to every line.
    model.script.curator({"raw_text": "NONE"})
    code, out, _ = await command(workspace, "doctor", "--live", "--json", model_url=model.url)
    found = json.loads(out)
    assert (code, found["accepted"], found["refused"], found["offline"]) == (1, 20, 0, False)
    assert found["estimate_usd"] > 0
    assert found["cost_usd"] > 0
