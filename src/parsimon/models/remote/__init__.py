"""Models behind a network: requests, retries, addresses and two protocols.

Imports `core` and the rest of `models`.
"""
