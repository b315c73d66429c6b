"""Runs one server and ends it when the owner is gone, however the owner ended (`kill -9` included).

Run as a script by infra/local/process.py, with the standard library alone. Arguments: the owner's process id, the
signal that ends the server, the user and group ids to run it as (-1: our own), its folder, its command. Prints the
server's process id, closes standard output, and exits with the server's exit code, or with 128 and the number of the
signal that ended it. Should the guardian itself be killed, the kernel sends the server the same signal.
"""

import ctypes
import os
import signal
import subprocess
import sys

_PR_SET_PDEATHSIG = 1
_WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
#: Seconds between two looks at the owner, and for a server to end before it is killed.
_EVERY, _END_SECONDS = 0.25, 10.0


def main(owner: int, end_signal: int, user: int, group: int, folder: str, command: list[str]) -> int:
    """Run the command until it ends, or until it has been ended because the owner is gone."""
    libc = ctypes.CDLL(None, use_errno=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)

    def in_server() -> None:
        # After the change of user, which would clear it.
        libc.prctl(_PR_SET_PDEATHSIG, end_signal, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())

    server = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=sys.stderr,
        user=user if user >= 0 else None,
        group=group if group >= 0 else None,
        extra_groups=[] if user >= 0 else None,
        preexec_fn=in_server,  # noqa: PLW1509 - there are no threads here.
    )
    print(server.pid, flush=True)
    os.close(1)
    # What the owner opened for reading must not be held open by us.
    os.open(os.devnull, os.O_WRONLY)
    while server.poll() is None:
        woken = signal.sigtimedwait(_WATCHED, _EVERY)
        if os.getppid() != owner or (woken is not None and woken.si_signo != signal.SIGCHLD):
            server.send_signal(end_signal)
            try:
                server.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                server.kill()
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


if __name__ == "__main__":
    _owner, _signal, _user, _group = (int(it) for it in sys.argv[1:5])
    sys.exit(main(_owner, _signal, _user, _group, sys.argv[5], sys.argv[6:]))
