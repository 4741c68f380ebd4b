"""A stand-in for `nvidia-cuda-mps-control`, as one program: with `-f` the daemon, without it who asks the daemon.

The daemon answers on the sockets `control` and `control_privileged` in CUDA_MPS_PIPE_DIRECTORY. Like NVIDIA's of driver
580, it changes nothing for who has the first alone. It writes down each command that it carries out in `commands`
beside them, and reads what it plays from the file `scenario` there, anew for each command, one fact a line:
  server PID CLIENT...      a server and its clients
  refuse COMMAND            this command (its first word) is answered with exit code 1
  hang                      nothing is answered while this stands there
  broken                    the daemon ends at its start
  loyal                     it does not end when it is told to quit
"""

import os
import selectors
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import cast

CLIENTS, PRIVILEGED = "control", "control_privileged"
REFUSED = "Insufficient privileges for UID 0. Control daemon settings can only be modified by who started it."


def facts(pipes: Path) -> list[list[str]]:
    try:
        return [line.split() for line in (pipes / "scenario").read_text().splitlines() if line.strip()]
    except FileNotFoundError:
        return []


def answer(command: str, *, pipes: Path) -> tuple[int, str]:
    played = facts(pipes)
    servers = {fact[1]: fact[2:] for fact in played if fact[0] == "server"}
    word, *rest = command.split()
    if ["refuse", word] in played:
        return 1, "Error\n"
    if word == "get_server_list":
        return 0, "".join(f"{pid}\n" for pid in servers)
    if word == "get_default_active_thread_percentage":
        return 0, "100.0\n"
    if word == "get_client_list":
        return (0, "".join(f"{pid}\n" for pid in servers[rest[0]])) if rest[0] in servers else (1, "Server not found\n")
    return 0, ""


def serve(pipes: Path) -> None:
    if ["broken"] in facts(pipes):
        raise SystemExit(3)
    os.chdir(pipes)  # a socket's path may be 107 bytes long, and a test's is longer
    listeners = selectors.DefaultSelector()
    for name in (CLIENTS, PRIVILEGED):
        Path(name).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(name)
        listener.listen()
        listeners.register(listener, selectors.EVENT_READ, data=name)
    while True:
        ready = listeners.select()[0][0]
        peer, _ = cast("socket.socket", ready.fileobj).accept()
        with peer, (pipes / "commands").open("a") as written:
            command = peer.makefile().readline().strip()
            if ready.data == CLIENTS and not command.startswith("get_"):
                peer.sendall(f"0\n{REFUSED}\n".encode())
                continue
            written.write(f"{command}\n")
            written.flush()
            while ["hang"] in facts(pipes):
                time.sleep(0.05)
            if command == "quit" and ["loyal"] not in facts(pipes):
                return
            code, text = answer(command, pipes=pipes) if command else (1, "")
            with suppress(OSError):  # who asked has gone meanwhile
                peer.sendall(f"{code}\n{text}".encode())


def ask(pipes: Path) -> int:
    command = sys.stdin.readline()
    os.chdir(pipes)
    try:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(PRIVILEGED if Path(PRIVILEGED).exists() else CLIENTS)
            peer.sendall(command.encode())
            code, _, text = peer.makefile().read().partition("\n")
    except OSError:
        print("Cannot find MPS control daemon process", file=sys.stderr)
        return 1
    print(text, end="")
    return int(code)


if __name__ == "__main__":
    directory = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
    if "-f" in sys.argv:
        serve(directory)
    else:
        raise SystemExit(ask(directory))
