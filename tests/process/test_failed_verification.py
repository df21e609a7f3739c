"""A verification that fails, with the real client and a scripted upstream."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import pytest

from sprite.config import Settings
from sprite.curation.extraction import Extractor, log_lost_call
from sprite.curation.model import CuratorModel
from sprite.curation.verifier import Verification
from sprite.errors import ModelError
from sprite.log.curations import Curation
from tests.memory_stores import open_stores
from tests.scripted_model import OfflineModel, Script

TEA = "I prefer tea in the morning"


async def test_failed_verification_leaves_batch_waiting(tmp_path: Path) -> None:
    """The curator is not asked again, and no secret of an answer is logged."""
    async with open_stores(tmp_path) as stores:
        await stores.projection.settle()
        turn = await stores.turn(TEA)
        learned = f'PREFERENCE [t{turn}] Prefers tea. | "{TEA}"'
        key = "sk-ant-api03-" + "Ab3dEf9hIjKlMnOpQrStUvWxYz" * 3
        script = Script(
            curator=[{"raw_text": learned}], verifier=[{"error": 529, "message": "the model is down", "times": 2}]
        )
        script.verifier({"raw_text": f"1 no {key}\n2 yes"})
        async with OfflineModel(script=script) as upstream:
            settings = Settings(tmp_path, base_url=upstream.url, api_key="key")
            model = CuratorModel(settings, partial(log_lost_call, stores.transcript))
            extractor = Extractor(stores.transcript, stores.memory, stores.files, model, stores.judge)

            async def extract() -> Curation:
                return await extractor.extract(await stores.transcript.waiting(9), 0, lambda _: True)

            for _ in range(2):
                with pytest.raises(ModelError, match="overloaded"):
                    await extract()
                assert (await stores.transcript.waiting_count(), await stores.transcript.curations.after(0)) == (1, [])
            curation = await extract()
            await model.close()
            assert [request.kind for request in upstream.requests] == ["curator", "verifier", "verifier", "verifier"]
        await stores.log(await stores.judge.decided(curation))
        await stores.projection.settle()
        assert (await stores.learnings(), await stores.transcript.waiting_count()) == ([], 0)
        (logged,) = await stores.transcript.curations.after(0)
        assert logged.verification_json is not None
        verification = msgspec.json.decode(logged.verification_json, type=Verification)
        assert [ruling.verdict for ruling in verification.rulings] == ["no", "yes"]
        assert key not in logged.verification_json
        # Both calls cost once.
        assert logged.cost_usd is not None
        assert logged.cost_usd > (verification.cost_usd or 0) > 0
        assert await stores.transcript.spending.total() == pytest.approx(logged.cost_usd)
