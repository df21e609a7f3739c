"""Notifications for people without an open page: the rules and the channels."""
