"""REST v1, `/api/v1/gpu`: the calls of a GPU manager that scripts already use."""
