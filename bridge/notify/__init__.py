"""Notifications for people without an open page: the rules and the channels."""

__all__ = ["notice", "notifier", "push", "routes", "rules", "webhook"]
