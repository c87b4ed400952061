"""Tests, in folders by kind: unit, contract, integration, faults, e2e, bench."""
