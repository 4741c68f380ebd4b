"""Tests of guests: the adapters of kinds, records, and admission."""
