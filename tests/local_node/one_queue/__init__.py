"""Tests of one machine's queue, which is brought up once for all of them; in their order, as a person meets it.

A test leaves no running job. The last file takes the queue down.
"""
