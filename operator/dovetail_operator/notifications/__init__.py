"""Mails and webhooks to the owners of jobs, within the limits of the installation.

notifier      sends what is due
messages      which changes are due, and their text
transports    SMTP and webhook
mail_limits   allowed domains, and mails per namespace and hour
"""
