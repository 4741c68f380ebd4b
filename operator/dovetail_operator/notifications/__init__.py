"""Optional: mails and webhooks to the owners of jobs, within the limits of the installation.

Loaded with a `notify_url`, or with the first job that asks for notifications: its event says that there is no server.

notifier      sends what is due, within the limits
messages      which changes are due, and their text
transports    SMTP and webhook
"""
