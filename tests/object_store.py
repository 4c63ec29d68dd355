"""An S3-compatible store on the loopback interface: moto's server, a process of its own.

A strict store checks signatures and rights: ``user`` makes keys that may do what is named. Until
``begin_to_check`` the store lets everybody in, so that users and buckets can be made.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pyarrow import fs

from tests.ports import free_port
from tests.waiting import wait_until
from workers.parent_death import dying_with_parent

REGION = "eu-central-1"
"""Not the one that a client takes when it is told of none."""

_A_CALL = 1000
"""Files that S3 removes in a call."""


class Keys(NamedTuple):
    """A pair of keys that a strict store knows."""

    key: str
    secret: str


ANYBODY = Keys("tests", "tests")


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A store with one bucket; it lets everybody in, whatever the keys are, unless it is strict."""

    endpoint: str
    bucket: str = "staging"

    def environment(self, key: str, secret: str) -> dict[str, str]:
        """What an AWS client needs to know of it, and nothing of this machine's own."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self, service: str, keys: Keys = ANYBODY) -> Any:
        """A client of one of the services that moto plays."""
        import boto3  # type: ignore[import-untyped]  # boto3 has no types

        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            aws_access_key_id=keys.key,
            aws_secret_access_key=keys.secret,
            region_name=REGION,
        )

    def user(self, name: str, actions: Sequence[str]) -> Keys:
        """Keys of a new user, who may do the actions on everything."""
        allowed = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
        iam = self.client("iam")
        iam.create_user(UserName=name)
        iam.put_user_policy(
            UserName=name,
            PolicyName="policy",
            PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [allowed]}),
        )
        made = iam.create_access_key(UserName=name)["AccessKey"]
        return Keys(made["AccessKeyId"], made["SecretAccessKey"])

    def lent(self, role: str, keys: Keys) -> dict[str, str]:
        """Iceberg's properties for keys of a role, made for whoever holds ``keys``."""
        sts = self.client("sts", keys)
        arn = f"arn:aws:iam::123456789012:role/{role}"
        made = sts.assume_role(RoleArn=arn, RoleSessionName="tests")["Credentials"]
        return {
            "s3.access-key-id": made["AccessKeyId"],
            "s3.secret-access-key": made["SecretAccessKey"],
            "s3.session-token": made["SessionToken"],
        }

    def role(self, name: str, actions: Sequence[str]) -> None:
        """A role, which anybody may take, and which may do the actions on everything."""
        allowed = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
        iam = self.client("iam")
        iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}")
        iam.put_role_policy(
            RoleName=name,
            PolicyName="policy",
            PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [allowed]}),
        )

    def begin_to_check(self) -> None:
        """From now on signatures and rights are checked, if the store is strict."""
        request = urllib.request.Request(  # noqa: S310 - our own server
            f"{self.endpoint}/moto-api/reset-auth",
            data=b"0",
            headers={"Content-Type": "text/plain"},
        )
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - our own server
            assert answer.status == 200

    def system(self, keys: Keys = ANYBODY, **more: Any) -> Any:
        """The tests' own way into it."""
        _, host = self.endpoint.split("://")
        return fs.S3FileSystem(
            access_key=keys.key,
            secret_key=keys.secret,
            endpoint_override=host,
            scheme="http",
            region=REGION,
            **more,
        )

    def files(self, prefix: str = "", keys: Keys = ANYBODY) -> list[str]:
        """Names of the files below a prefix; markers of folders are none."""
        chosen = fs.FileSelector(
            f"{self.bucket}/{prefix}".rstrip("/"), recursive=True, allow_not_found=True
        )
        found = self.system(keys).get_file_info(chosen)
        return sorted(each.path for each in found if each.type is fs.FileType.File)

    def remove(self, prefix: str, keys: Keys = ANYBODY) -> None:
        """Remove the files below a prefix; markers of folders may stay."""
        client = self.client("s3", keys)
        names = [{"Key": path.partition("/")[2]} for path in self.files(prefix, keys)]
        for first in range(0, len(names), _A_CALL):
            some = {"Objects": names[first : first + _A_CALL], "Quiet": True}
            client.delete_objects(Bucket=self.bucket, Delete=some)


@contextmanager
def object_store(
    folder: Path, *, strict: bool = False, program: Sequence[str] = ("-m", "moto.server")
) -> Iterator[ObjectStore]:
    """A running store; its log of requests is in ``folder``. ``program`` is moto's server."""
    env = {**os.environ, **({"INITIAL_NO_AUTH_ACTION_COUNT": "1000000"} if strict else {})}
    port = free_port()
    with (folder / "object_store.log").open("wb") as log:
        server = subprocess.Popen(
            dying_with_parent([sys.executable, *program, "-H", "127.0.0.1", "-p", str(port)]),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=env,
        )
    try:
        wait_until(lambda: _answers(server, port), 120, f"moto's server listens; see {log.name}")
        store = ObjectStore(f"http://127.0.0.1:{port}")
        store.system(allow_bucket_creation=True).create_dir(store.bucket)
        yield store
    finally:
        server.terminate()
        server.wait(30)


def _answers(server: subprocess.Popen[bytes], port: int) -> bool:
    assert server.poll() is None, "moto's server ended"
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
