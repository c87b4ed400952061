"""The reference upstream: a real HTTP server with the habits of real ones, for the demo and the tests.

It has accounts, expiring tokens, friend slots, allowances per account, 429 with and without Retry-After, slow and
failing accounts, and it counts every call, so that tests can ask it what really happened.
"""
