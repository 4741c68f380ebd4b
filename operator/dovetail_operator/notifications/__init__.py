"""Mails and webhooks to the owners of jobs, within the limits of the installation."""
