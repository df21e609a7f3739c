"""A stand-in for the Sprites API on loopback, to which the official SDK and the bridge speak unchanged."""

from tests.emulator.api import Call, Emulator, Fault
from tests.emulator.machine import Machine

__all__ = ["Call", "Emulator", "Fault", "Machine"]
