"""Tests on a real control plane."""
