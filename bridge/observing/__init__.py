"""Metrics and logs of the bridge for operators. It imports no other package of the bridge."""
