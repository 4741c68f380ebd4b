"""A group of one process, which keeps what it was asked for."""

world_size = 0


def init_process_group(*, backend: str, world_size: int = 1) -> None:
    assert backend
    globals()["world_size"] = world_size


def is_initialized() -> bool:
    return False


def get_rank() -> int:
    return 0
