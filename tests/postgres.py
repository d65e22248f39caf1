"""A PostgreSQL server of one's own, where Debian's package is installed."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path


@contextlib.contextmanager
def serving(databases: Iterable[str] = ()) -> Iterator[str]:
    """A server for as long as the block runs.

    Yields:
        The URL of its databases, with ``{}`` for the name; or why there is none.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    try:
        import psycopg  # noqa: F401
    except ImportError:
        yield "no driver: pip install 'psycopg[binary]'"
        return
    if not found:
        yield "no PostgreSQL server: Debian's package postgresql has one"
        return
    programs, user = found[-1].parent, "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    home = Path(tempfile.mkdtemp(prefix="pg"))
    if os.geteuid() == 0:  # as which PostgreSQL refuses to run
        shutil.chown(home, user)

    def call(program: str, *arguments: str) -> None:
        command = [str(programs / program), *arguments]
        subprocess.run(command, user=user, cwd=home, check=True, capture_output=True, timeout=60)

    call("initdb", "-D", f"{home}/data", "-A", "trust", "-U", "me", "--no-sync")
    options = f"-k {home} -c listen_addresses='' -c fsync=off"
    try:
        call("pg_ctl", "-D", f"{home}/data", "-w", "-l", f"{home}/log", "-o", options, "start")
        for name in databases:
            call("createdb", "-h", str(home), "-U", "me", name)
        yield f"postgresql+psycopg://me@/{{}}?host={home}"
    finally:
        subprocess.run(
            [str(programs / "pg_ctl"), "-D", f"{home}/data", "-m", "immediate", "stop"],
            user=user,
            cwd=home,
            capture_output=True,
        )
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def database(server: str, name: str) -> Iterator[str]:
    """A database of a server, for as long as the block runs; yields its URL."""
    import psycopg

    def say(statement: str) -> None:
        # Closed at once: processes forked in the block would share it.
        with psycopg.connect(
            server.format("postgres").replace("+psycopg", ""), autocommit=True
        ) as connection:
            connection.execute(statement.encode())

    say(f"CREATE DATABASE {name}")
    yield server.format(name)
    say(f"DROP DATABASE {name} WITH (FORCE)")
