"""What can go wrong with a cluster."""


class ClusterError(Exception):
    """A cluster cannot be started, reached or stopped; the message says what to do."""


class CommandError(ClusterError):
    """A command against a cluster failed."""

    def __init__(self, command: str, returncode: int, stdout: str, stderr: str) -> None:
        """Keep the outcome of a command, whose message is mostly what it wrote to stderr."""
        super().__init__(f"{command} ended with {returncode}: {(stderr or stdout).strip()}")
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr
