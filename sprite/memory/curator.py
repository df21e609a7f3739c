"""The curator, without its calls: what a batch of turns is asked, and what the answer says.

    turns, files, open learnings --build_prompt--> (system, user) --a model--> text --parse_response--> learnings, files

Pure: the model is called by the processor, and what an answer may change is decided by guards behind it. The prompt
is in `curator_prompt`, the grammar of the answer in `curator_response` and `curator_updates`.
"""

from sprite.memory.curator_prompt import (
    CuratorPrompt,
    CuratorTurn,
    OpenLearning,
    build_prompt,
    fit,
)
from sprite.memory.curator_response import (
    CURATED_FILES,
    LEARNING_TYPES,
    CuratorResponse,
    ParsedLearning,
    parse_response,
    plain_text,
)
from sprite.memory.tokens import estimate_tokens

__all__ = [
    "CURATED_FILES",
    "LEARNING_TYPES",
    "CuratorPrompt",
    "CuratorResponse",
    "CuratorTurn",
    "OpenLearning",
    "ParsedLearning",
    "build_prompt",
    "estimate_tokens",
    "fit",
    "parse_response",
    "plain_text",
]
