"""Optional: records that outlive their jobs, written to a database, and queries on them answered.

Loaded with a `history_url`: no other part of the operator knows SQLAlchemy. Without a history, `answers` alone is
loaded, which tells those who ask.

service              the history as one part of the operator
recorder             when a record is written, and GPU seconds by namespace and user
store                the database: SQLite or PostgreSQL
schema               its table and the migration
aggregates           sums over records
answers              answers HistoryQuery objects
questions            what the records answer
deleted_namespaces   jobs that failed with their namespace
log_tail             the last lines of a job's logs
"""
