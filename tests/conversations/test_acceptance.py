"""What belongs to the acceptance of a reply alone; the rest is seen through the services."""

from uuid import uuid4

from chatsite.ids import new_id
from conversations.acceptance import Accepted
from conversations.follow import Reader
from inference.protocol import Cursor
from inference.services import cache_salt
from quotas.protocol import PlanLimits, Remaining, Standing

REMAINING = Remaining((Standing(PlanLimits("demo", "paid", 1, 1).bucket),))


def test_each_organization_has_a_cache_of_its_own() -> None:
    one, two = uuid4(), uuid4()
    assert cache_salt(one) == cache_salt(one) != cache_salt(two)
    assert str(one) not in cache_salt(one)


def test_a_promised_reply_is_followed_without_being_read() -> None:
    accepted = Accepted(new_id(), new_id(), new_id(), REMAINING)
    assert (accepted.reply.status, accepted.reply.text) == ("pending", "")
    assert Reader(accepted.reply, accepted.base).position == 0
    base = Cursor(new_id(), 3, 12)
    continued = Accepted(new_id(), new_id(), new_id(), REMAINING, base)
    reader = Reader(continued.reply, base)
    assert reader.stored(continued.reply) == []
    assert (reader.position, reader.entry, reader.started) == (12, "3-0", False)
