"""A hundred calls at once, from two processes, against each kind of hard limit."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import connection

from chatsite.ids import new_id
from chatsite.redis import sync_client
from quotas import budgets
from quotas.scripts import quota_prefix

ROOT = Path(__file__).parents[2]
CALLS, ROOM = 50, 33  # of each process; what each limit has room for
USER = new_id()
TOKENS, COST = 30, 7_000_000_000
KINDS: dict[str, dict[str, Any]] = {
    "replies at once": {"concurrent": ROOM, "budget": []},
    "tokens of a month": {"budget": [("plan", "org", "tokens", ROOM * TOKENS + 29, 0)]},
    "cost of a month": {"budget": [("organization", "org", "cost", ROOM * COST + COST - 1, 0)]},
    "tokens of some days": {"budget": [("organization", "org", "tokens", ROOM * TOKENS, 7)]},
    "cost of a member": {"budget": [("user", budgets.member(USER), "cost", ROOM * COST, 0)]},
    "several": {
        "budget": [("plan", "org", "tokens", 1_000_000, 0), ("user", budgets.member(USER), "tokens", ROOM * TOKENS, 30)]
    },
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", KINDS)
def test_s21_a_hundred_calls_from_two_processes_take_what_there_is_and_no_more(kind: str) -> None:
    organization = new_id()
    given = {"organization": str(organization), "user": str(USER), "count": CALLS, "wanted": [0, TOKENS, COST]}
    order = json.dumps({"concurrent": 1_000_000, **given, **KINDS[kind]})
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.quotas.many_calls", order],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": url},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    admitted = [int(process.communicate("go\n", timeout=30)[0].splitlines()[-1]) for process in processes]
    assert sum(admitted) == ROOM
    assert sync_client().hlen(f"{quota_prefix(organization)}:held") == ROOM
