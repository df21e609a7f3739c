"""The model proxy: authenticate a sprite's calls, enforce its budget and forward them to the model's API."""
