"""The scenes, in the order of the contact sheet."""

from tests.acceptance.gallery import SCENES

from tests.acceptance.scenes import frame, replies, thread  # isort: skip
from tests.acceptance.scenes import accounts, keys, organizations, usage, money, admin  # isort: skip

__all__ = ["SCENES", "accounts", "admin", "frame", "keys", "money", "organizations", "replies", "thread", "usage"]
