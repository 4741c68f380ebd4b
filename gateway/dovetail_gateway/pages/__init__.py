"""The documentation of the API as a page of this server: nothing comes from another one."""
