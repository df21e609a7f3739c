"""The client's state of the canvas: stacks, open cards and the current stack (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sprite.protocol.shapes import Card, Stack

if TYPE_CHECKING:
    from sprite.protocol.messages import CanvasUpdate, StateSync


class Board:
    """The canvas state, updated by the sprite's messages. `current` is the shown stack, None to show all."""

    def __init__(self, *, shows_one_stack: bool) -> None:
        """With `shows_one_stack`, the newest open stack is shown until the person chooses; otherwise all are."""
        self.cards: dict[str, Card] = {}
        self.stacks: dict[str, Stack] = {}
        self._shows_one_stack = shows_one_stack
        self._chosen: str | None = None

    @property
    def current(self) -> Stack | None:
        """Return the current stack. It stays the same when another one is created."""
        chosen = self.stacks.get(self._chosen or "")
        if chosen is not None and not chosen.archived:
            return chosen
        is_open = [stack for stack in self.stacks.values() if not stack.archived]
        if not is_open or not (self._shows_one_stack or self._chosen):
            return None
        self._chosen = is_open[-1].stack_id
        return is_open[-1]

    @property
    def stack_id(self) -> str | None:
        """Return the current stack's id."""
        return None if self.current is None else self.current.stack_id

    @property
    def shown(self) -> list[Card]:
        """Return the cards of the current stack, oldest first."""
        return [card for card in self.cards.values() if self.is_shown(card.stack_id)]

    def is_shown(self, stack_id: str) -> bool:
        """Return whether cards of that stack are shown."""
        current = self.current
        return current is None or current.stack_id == stack_id

    def choose(self, words: str) -> Stack | None:
        """Switch to an open stack by list number or name and return it, or None if there is none."""
        stacks = list(self.stacks.values())
        if words.isdecimal() and 1 <= int(words) <= len(stacks):
            found = [stacks[int(words) - 1]]
        else:
            found = [stack for stack in stacks if stack.name.casefold() == words.casefold()]
        is_open = [stack for stack in found if not stack.archived]
        if not is_open:
            return None
        self._chosen = is_open[-1].stack_id
        return is_open[-1]

    def number(self, stack_id: str) -> int:
        """Return a stack's number in the list, from 1; 0 if it is unknown."""
        return list(self.stacks).index(stack_id) + 1 if stack_id in self.stacks else 0

    def sync(self, state: StateSync) -> None:
        """Replace the state by a synced one."""
        self.cards = {card.card_id: card for card in state.cards if not card.archived}
        self.stacks = {stack.stack_id: stack for stack in state.stacks}

    def take(self, update: CanvasUpdate) -> None:
        """Apply a card's update."""
        if update.command == "close_card":
            self.cards.pop(update.card_id, None)
            return
        self.cards[update.card_id] = Card(
            update.card_id, update.stack_id, update.title, update.card_type, None, None, update.blocks, archived=False
        )
