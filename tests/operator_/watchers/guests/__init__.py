"""Tests of the operator's part of guests."""
